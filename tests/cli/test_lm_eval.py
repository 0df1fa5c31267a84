"""lm-eval's own command line finds the model `adaptive`."""

import json
import subprocess
import sys

import pytest

from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.runs.planning.backbones import find_backbone


@pytest.mark.slow
def test_the_command_gives_the_suites_numbers(tmp_path):
    """A process of its own, as lm-eval sets logging up for all of it."""
    nano = find_backbone("nano")
    model, tokenizer = AdaptiveModel.build(nano.load_model(), "random_skip").eval(), nano.load_tokenizer()
    model.save_pretrained(tmp_path / "saved", tokenizer)
    arguments = ["run", "--model", "adaptive", "--model_args", f"pretrained={tmp_path / 'saved'},saving=0.1"]
    arguments += ["--tasks", "nano_math", "--include_path", str(find_task("nano_math").folder), "--limit", "8"]
    arguments += ["--device", "cpu", "--batch_size", "4", "--output_path", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "adaptive_bench", "lm-eval", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "out").rglob("results_*.json")
    found = json.loads(file.read_text())["results"]["nano_math"]
    model.saving = 0.1
    expected = evaluate(model, tokenizer, "nano_math", limit=8)[0].scores
    assert {key: found[key] for key in expected} == expected
