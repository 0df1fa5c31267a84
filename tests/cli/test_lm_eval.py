"""lm-eval's own command line finds the model `adaptive` and the suite's tasks."""

import json
import subprocess
import sys
from argparse import Namespace

import pytest
import torch

from adaptive_bench.cli import models
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.runs.backbone_source import find_backbone


@pytest.mark.slow
def test_the_command_gives_the_suites_numbers_with_no_device_or_folder_of_tasks_named(tmp_path):
    """A process of its own, as lm-eval sets logging up for all of it; what was chosen is said."""
    nano = find_backbone("nano")
    model, tokenizer = AdaptiveModel.build(nano.load_model(), "random_skip").eval(), nano.load_tokenizer()
    model.save_pretrained(tmp_path / "saved", tokenizer)
    arguments = ["run", "--model", "adaptive", "--model_args", f"pretrained={tmp_path / 'saved'},saving=0.1"]
    arguments += ["--tasks", "nano_math", "--limit", "8", "--batch_size", "4", "--output_path", str(tmp_path / "out")]
    program = [sys.executable, "-m", "adaptive_bench", "lm-eval", *arguments]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"the model runs on {'cuda' if torch.cuda.is_available() else 'cpu'}" in done.stderr
    (file,) = (tmp_path / "out").rglob("results_*.json")
    found = json.loads(file.read_text())["results"]["nano_math"]
    model.saving = 0.1
    expected = evaluate(model, tokenizer, "nano_math", limit=8)[0].scores
    assert {key: found[key] for key in expected} == expected


def test_a_typo_is_the_users_and_is_found_at_once():
    """With a suggestion, before anything that takes time is imported."""
    program = (
        "import sys\n"
        "from adaptive_bench.cli import main\n"
        "sys.argv[1:] = 'lm-eval run --model adaptive --model_args pretrained=x --tasks piqa,nano_mth'.split()\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    said = "Usage error: No task is called 'nano_mth'. Did you mean 'nano_math'?\n"
    assert (done.returncode, done.stderr) == (2, said)


def completed(**given):
    usual = {"model": "adaptive", "model_args": None, "config": None, "include_path": None, "device": None}
    arguments = Namespace(**usual | given)
    models._complete(arguments)
    return arguments


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tasks": None}, "--tasks"),
        ({"tasks": ["no_such_*"]}, "no_such"),
        ({"model": None}, "got no --model"),
    ],
)
def test_what_lm_eval_would_find_out_late_is_refused(given, said):
    with pytest.raises(UsageError, match=said):
        completed(**{"tasks": ["nano_math"]} | given)


def test_what_the_arguments_stand_for(capsys, tmp_path):
    """Groups and tasks of this package, patterns, and lm-eval's own names as they are."""
    assert completed(tasks=["nano_math"], model="hf", model_args={"pretrained": "gpt2"}).tasks == ["nano_math"]
    found = completed(tasks=["paper-out-of-domain,nano_*", "lambada", "arc_easy"], device="cpu")
    assert found.tasks[-3:] == ["nano_*", "lambada_openai", "arc_easy"] and "paper-out-of-domain" not in found.tasks
    assert "lambada stands for lambada_openai here." in capsys.readouterr().err
    (tmp_path / "mine.yaml").write_text("task: mine_alone\noutput_type: generate_until\n")
    assert completed(tasks=["mine_alone"], include_path=str(tmp_path), device="cpu").tasks == ["mine_alone"]
    for name in ("no_such_*", "perplexity:notes", "mine_alone"):
        with pytest.raises(UsageError):
            completed(tasks=[name], device="cpu")


def test_the_device(capsys, tmp_path):
    """Where none is given one is chosen aloud; one that is given has to be there, in a config file as well."""
    assert completed(tasks=["piqa"]).device == ("cuda" if torch.cuda.is_available() else "cpu")
    assert "No --device is given" in capsys.readouterr().err
    (tmp_path / "lm.yaml").write_text("device: cuda:99\ntasks: [piqa]\nmodel: adaptive\n")
    for given in ({"device": "cuda:99", "tasks": ["piqa"]}, {"config": str(tmp_path / "lm.yaml"), "tasks": None}):
        with pytest.raises(UsageError, match="cuda:99"):
            completed(**given)
    assert completed(tasks=["piqa"], model="dummy").device is None
    assert completed(tasks=["piqa"], model_args={"device": "cpu"}).device == "cpu"
