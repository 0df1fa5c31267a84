"""One training over several processes gives the losses of one process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from adaptive_bench.errors import UsageError
from adaptive_bench.methods.dense import Dense
from adaptive_bench.processes import Processes
from adaptive_bench.training.distributed import DistributedTraining
from adaptive_bench.training.loop import train

SPECS = [
    "dense",
    "gateskip",
    "gateskip[shape=scalar,loss=kl_layer]",
    "mod",
    "random_skip[trained=true]",
    "layerskip",
    "skiplayer",
    "skipgpt",
    "informed_routing",
    "flexidepth",
    "prompt_router",
    "prompt_router[labels=search,simulations=5]",
    "d_llm[start_layer=0]",
    "router_tuned_mod",
    "calm",
]
CLOSE = 1e-5

CHILD = """
import importlib.util, json, sys
from pathlib import Path
module = importlib.util.spec_from_file_location("parts", sys.argv[1])
parts = importlib.util.module_from_spec(module)
module.loader.exec_module(parts)
import torch
torch.set_num_threads(1)
from adaptive_bench import processes
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.task import Example
from adaptive_bench.training.loop import train
setting = json.loads(Path(sys.argv[2]).read_text())
examples = [Example(*pair) for pair in setting["examples"]]
for number, (spec, changes) in enumerate(setting["trainings"]):
    recipe = TrainRecipe(**setting["recipe"] | changes)
    folder = Path(setting["folder"]) / str(number)
    with processes.world().sharing():
        train(parts.make_model(spec), examples, parts.make_tokenizer(), recipe, seed=1, folder=folder)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / "train.jsonl").read_text().splitlines()]


def trained_by_two(tmp_path, examples, recipe, trainings):
    """Folders `0`, `1` ... of trainings (spec, changes of the recipe), each by two processes that torchrun starts."""
    script, setting = tmp_path / "child.py", tmp_path / "setting.json"
    script.write_text(CHILD)
    values = {"examples": [(e.prompt, e.completion) for e in examples], "recipe": recipe.model_dump(mode="json")}
    setting.write_text(json.dumps(values | {"trainings": trainings, "folder": str(tmp_path)}))
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    conftest = Path(__file__).with_name("conftest.py")
    done = subprocess.run([*start, script, conftest, setting], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_have_the_losses_of_one(model_of, examples, tokenizer, recipe, tmp_path, parallel):
    recipe = recipe.model_copy(update={"steps": 30, "batch_size": 6, "checkpoint_every": 100})
    trainings = [(spec, {"parallel": parallel}) for spec in SPECS]
    trainings.append(("gateskip", {"parallel": parallel, "accumulation": 3}))
    together = trained_by_two(tmp_path, examples, recipe, trainings)
    for number, (spec, changes) in enumerate(trainings):
        alone = tmp_path / f"alone-{number}"
        train(model_of(spec), examples, tokenizer, recipe.model_copy(update=changes), seed=1, folder=alone)
        found, wanted = losses(together / str(number)), losses(alone)
        worst = max(abs(one - other) for one, other in zip(found, wanted, strict=True))
        print(f"{parallel} {spec} {changes}: largest difference of 30 losses {worst:.1e}")
        assert worst < CLOSE, spec
        files = {path.relative_to(alone) for path in alone.rglob("*")}
        assert files == {path.relative_to(together / str(number)) for path in (together / str(number)).rglob("*")}


def test_a_method_that_does_not_say_how_it_spans_a_batch_is_refused(model):
    model.method.__class__ = type("Mine", (Dense,), {})  # what its base says does not count
    with pytest.raises(UsageError, match=r"dense does not claim \(`supports_data_parallel` of Mine\)"):
        DistributedTraining(model, Processes(0, 2), fully_sharded=False)


def test_every_process_needs_a_row(model):
    training = DistributedTraining(model, Processes(), fully_sharded=False)
    training.processes = Processes(1, 3)
    assert training.part(range(8)) == range(2, 5)
    with pytest.raises(UsageError, match=r"train\.accumulation"):
        training.part(range(2))
