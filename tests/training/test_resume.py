"""A training that is killed at any moment ends, once resumed, in the bytes of one that was not."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from pretended_accelerator import DEVICE, pretended

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store.records import Record
from adaptive_bench.training import resume
from adaptive_bench.training.loop import train

CHILD = """
import importlib.util, json, sys, time
from pathlib import Path
module = importlib.util.spec_from_file_location("parts", sys.argv[1])
parts = importlib.util.module_from_spec(module)
module.loader.exec_module(parts)
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.task import Example
from adaptive_bench.training.loop import train
setting = json.loads(sys.argv[3])
examples = [Example(*pair) for pair in setting["examples"]]
model = parts.make_model("gateskip")
begin = model.begin_step
model.begin_step = lambda step, total: (time.sleep(0.02), begin(step, total))
recipe = TrainRecipe(**setting["recipe"])
train(model, examples, parts.make_tokenizer(), recipe, seed=1, folder=Path(sys.argv[2]))
"""


def result(folder):
    return {
        "train.jsonl": (folder / "train.jsonl").read_bytes(),
        "data": json.dumps([Record(folder).read(section) for section in ("data", "cost")]).encode(),
        **{file.name: file.read_bytes() for file in (folder / "checkpoint").rglob("*") if file.is_file()},
    }


@pytest.mark.parametrize("lines_before_the_kill", [pytest.param(1, marks=pytest.mark.slow), 9])
def test_kill_minus_nine_then_resume(model_of, examples, tokenizer, recipe, tmp_path, lines_before_the_kill):
    recipe = recipe.model_copy(update={"steps": 16, "checkpoint_every": 3})
    train(model_of("gateskip"), examples, tokenizer, recipe, seed=1, folder=tmp_path / "whole")

    folder = tmp_path / "killed"
    setting = {"recipe": recipe.model_dump(), "examples": [(e.prompt, e.completion) for e in examples]}
    conftest = Path(__file__).with_name("conftest.py")
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(conftest), str(folder), json.dumps(setting)])
    log = folder / "train.jsonl"
    while child.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") >= lines_before_the_kill):
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not (folder / "checkpoint").exists()

    model = model_of("gateskip")
    if resume.newest(folder / "resume"):  # then the weights must come from there
        with torch.no_grad():
            [parameter.zero_() for parameter in model.parameters()]
    train(model, examples, tokenizer, recipe, seed=1, folder=folder)
    assert result(folder) == result(tmp_path / "whole")
    assert not (folder / "resume").exists()


def test_on_an_accelerator(model_of, examples, tokenizer, recipe, tmp_path, monkeypatch):
    """Trained, interrupted and resumed there: the steps of the CPU."""
    train(model_of("gateskip"), examples, tokenizer, recipe, seed=1, folder=tmp_path / "cpu")
    save = resume.save

    def save_and_stop(*args, **kwargs):
        save(*args, **kwargs)
        raise KeyboardInterrupt

    with pretended():
        monkeypatch.setattr(resume, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            train(model_of("gateskip").to(DEVICE), examples, tokenizer, recipe, seed=1, folder=tmp_path / "there")
        monkeypatch.setattr(resume, "save", save)
        model = model_of("gateskip").to(DEVICE)
        [parameter.data.zero_() for parameter in model.parameters()]  # all weights are the checkpoint's
        train(model, examples, tokenizer, recipe, seed=1, folder=tmp_path / "there")
    logs = [(tmp_path / place / "train.jsonl").read_text().splitlines() for place in ("there", "cpu")]
    for ours, theirs in zip(*(map(json.loads, lines) for lines in logs), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert ours["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=1e-5)


def test_a_torn_write_is_never_taken_for_a_checkpoint(model, recipe, tmp_path, monkeypatch):
    optimizer = torch.optim.AdamW(model.parameters())
    resume.save(tmp_path, resume.Progress(1, 1, 0), model, optimizer)
    monkeypatch.setattr(resume, "write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        resume.save(tmp_path, resume.Progress(2, 1, 0), model, optimizer)
    assert resume.newest(tmp_path).name == "step-00000001"
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_checkpoint_of_another_model_is_refused(model, tmp_path):
    optimizer = torch.optim.AdamW(model.parameters())
    resume.save(tmp_path, resume.Progress(1, 1, 0), model, optimizer)
    model.extra = torch.nn.Linear(2, 2)
    with pytest.raises(EnvironmentProblem, match=r"extra\."):
        resume.restore(resume.newest(tmp_path), model, optimizer)


@pytest.mark.parametrize("part", ["weights.safetensors", "optimizer.safetensors", "progress.json"])
def test_a_file_that_is_cut_off_is_named(part, model, tmp_path):
    optimizer = torch.optim.AdamW(model.parameters())
    resume.save(tmp_path, resume.Progress(1, 1, 0), model, optimizer)
    file = resume.newest(tmp_path) / part
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(EnvironmentProblem, match="step-00000001 cannot be read"):
        resume.restore(resume.newest(tmp_path), model, optimizer)
