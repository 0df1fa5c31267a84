"""A run's checkpoints are models that skip as soon as they are loaded."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.runs import plan, run
from adaptive_bench.runs.trained import find_model

FRESH = """
import json, sys
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.model import AdaptiveModel
from transformers import AutoTokenizer

folder, spec, task, asked = sys.argv[1:]
model = AdaptiveModel.from_pretrained(folder, spec)
model.saving = float(asked)
found, _ = evaluate(model, AutoTokenizer.from_pretrained(folder), task, limit=3, batch_size=4)
print(json.dumps({"dial": found.dial, "scores": found.scores, "savings": found.savings}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["gateskip", "mod", "calm", "random_skip", "gateskip[kv=copy_below]"])
def test_a_fresh_process_repeats_the_record(spec, config_of):
    """Score, dial and savings at the last level, from nothing but the checkpoint's folder."""
    run(config_of(spec))
    (sweep,) = plan(config_of(spec)).sweeps
    asked, recorded = max(sweep.record.read("points").items(), key=lambda point: float(point[0]))
    arguments = [sys.executable, "-c", FRESH, str(sweep.training.checkpoint), spec, "nano_qa_ll", asked]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {key: recorded[key] for key in found}


def test_finding_a_checkpoint(finished):
    """The folder of a model, of a record, or of a run with a method. Hugging Face refuses it, not silently without its
    gates, and reads its tokenizer, an ordinary one.
    """
    config, folder, _ = finished
    run(config, jobs=1)  # the copy lies elsewhere, which its config says from now on
    gateskip, dense = plan(config).trainings
    assert find_model(folder, "gateskip")[0] == gateskip.checkpoint
    assert find_model(dense.folder, None)[0] == find_model(dense.checkpoint, None)[0] == dense.checkpoint
    with pytest.raises(ValueError, match="Unrecognized model"):
        AutoModelForCausalLM.from_pretrained(gateskip.checkpoint)
    assert AutoTokenizer.from_pretrained(gateskip.checkpoint).eos_token == "</s>"
    for method in (None, "mod"):
        with pytest.raises(UsageError, match="gateskip, dense"):
            find_model(folder, method)
    gateskip.checkpoint.rename(gateskip.folder / "elsewhere")
    with pytest.raises(EnvironmentProblem, match="not finished"):
        find_model(folder, "gateskip")
    (config.out / "records").rename(config.out / "elsewhere")
    with pytest.raises(EnvironmentProblem, match=r"there is no folder .*records'\. Put it back; or move the run's"):
        find_model(folder, "dense")


def test_a_model_of_a_run_by_name(finished):
    """By folder, name, beginning of it or `last`, from where runs lie; a run's folder alone says what to call."""
    config, folder, _ = finished
    for name in (folder, folder.name, folder.name[:4], "last"):
        model = AdaptiveModel.load(name, "gateskip", out=config.out)
        assert str(model.spec) == "gateskip" and not model.training
    tokenizer = AutoTokenizer.from_pretrained(model.name_or_path)
    prompt = tokenizer("Anna is in the garden. Where is Anna? ", return_tensors="pt")
    model.generate(**prompt, max_new_tokens=16)  # skips right away, as it was trained to
    (target,) = {each.target for each in plan(config).trainings} - {None}
    assert model.saving == pytest.approx(target) and model.compute_report()["saved"]["tokens"] > 0
    model.saving = 0.3  # calibrated by the run
    model.store_calibration(model.name_or_path, "another", {}, "of another text")
    with pytest.raises(UsageError, match=r"several calibrations of gateskip.*calibration=.*another, nano_qa_ll"):
        AdaptiveModel.load(folder, "gateskip")
    assert AdaptiveModel.load(folder, "gateskip", calibration="nano_qa_ll").saving == pytest.approx(target)
    assert AdaptiveModel.load(folder, "gateskip", calibration=None).saving == 0.0
    with pytest.raises(UsageError, match="gateskip, dense"):
        AdaptiveModel.load(folder, "mod")
    with pytest.raises(UsageError, match="nothing"):
        AdaptiveModel.load("nothing", "dense", out=config.out)
    with pytest.raises(EnvironmentProblem, match=r"AdaptiveModel\.load\(run, method\)"):
        AdaptiveModel.from_pretrained(folder)


def test_what_the_advice_about_a_damaged_model_leads_to(finished):
    """Weights that are gone are trained anew, and a model that is not what it was is made again by what is advised."""
    config, folder, _ = finished
    training = plan(config).trainings[0]
    before = training.checkpoint / "method.safetensors"
    content = before.read_bytes()
    shutil.rmtree(training.checkpoint)
    assert not run(config).failures
    assert before.read_bytes() == content
    for damage in (
        lambda: before.write_bytes(content[:-9]),
        lambda: shutil.rmtree(training.checkpoint / "calibration"),
    ):
        damage()
        with pytest.raises(EnvironmentProblem, match="Remove the folder") as caught:
            AdaptiveModel.load(folder, "gateskip").saving = 0.3
        shutil.rmtree(re.search("Remove the folder '(.*?)' and", str(caught.value))[1])
        run(config)
        AdaptiveModel.load(folder, "gateskip").saving = 0.3
