"""Quantized models are measured beside the others: with the same trainings, under keys of their own."""

import pytest

from adaptive_bench.backbone import weights as quantization
from adaptive_bench.config_file import load_config
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.stored_calibration import names
from adaptive_bench.recipe import EvalRecipe
from adaptive_bench.runs import plan, run
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import run_key
from adaptive_bench.store.records import Record
from adaptive_bench.weight_forms import QUANTIZED


def sweeps_of(outcome):
    """By the form, the points of every sweep on disk."""
    found = {}
    for sweep in sorted(outcome.folder.parent.parent.glob("records/*/eval/*")):
        record = Record(sweep)
        how = record.read("config").get("quantize", "none")
        found.setdefault(how, []).append((record, list(record.read("points").values())))
    return found


def test_a_quantized_run_trains_nothing_anew_and_calibrates_for_itself(config_of):
    """T-QZ7."""
    pytest.importorskip("torchao")
    plain = run(config_of("gateskip"))
    (checkpoint,) = plain.folder.parent.parent.glob("records/*/checkpoint")
    before = {file: file.read_bytes() for file in checkpoint.rglob("*.*")}
    small = run(config_of("gateskip", evaluation={"quantize": "int8"}))
    assert plain.folder != small.folder and not plain.failures and not small.failures
    assert len(list((plain.folder.parent.parent / "records").iterdir())) == 1, "the training is that of the other run"
    assert {file: file.read_bytes() for file in checkpoint.rglob("*.*")} == before, "nor is its calibration replaced"
    assert names(checkpoint, MethodSpec.parse("gateskip")) and AdaptiveModel.from_pretrained(checkpoint).saving >= 0

    found = sweeps_of(plain)
    assert found.keys() == {"none", "int8"}
    ((own, points),), ((other, now),) = found["none"], found["int8"]
    assert own.folder != other.folder and points != now
    for here, there in zip(points, now, strict=True):
        counts = [one["report"]["counts"]["prefill"] for one in (here, there)]
        assert counts[0]["dense_macs"] == pytest.approx(counts[1]["dense_macs"], rel=1e-9)
        assert counts[1]["weight_bytes"] < counts[0]["weight_bytes"]
    assert other.read("env")["torchao"]
    assert "torchao" not in own.read("env")
    assert {"quantize" in row["recipe"] for row in plain.rows} == {False}
    assert {row["recipe"].endswith("quantize int8") for row in small.rows} == {True}


def test_the_same_command_finds_what_was_measured_and_other_forms_do_not(config_of):
    pytest.importorskip("torchao")
    config = config_of("dense", evaluation={"quantize": "int8"})
    first = run(config)
    assert run(config).rows == first.rows
    assert plan(config).sweeps[0].is_complete and not plan(config_of("dense")).sweeps[0].is_complete


@pytest.mark.parametrize("how", ["int4", "nf4"])
def test_texts_are_written_in_4_bits(config_of, how):
    pytest.importorskip({"int4": "optimum.quanto", "nf4": "bitsandbytes"}[how])
    outcome = run(config_of("gateskip", tasks=("nano_math",), evaluation={"quantize": how, "limit": 2}))
    assert not outcome.failures and {row["recipe"].endswith(f"quantize {how}") for row in outcome.rows} == {True}


def test_runs_and_points_of_earlier_versions_keep_their_keys():
    plain = load_config("smoke").model_dump(mode="json")
    assert plain["evaluation"]["quantize"] == "none" and "quantize" not in EvalRecipe().in_key()
    before = plain | {"evaluation": {key: value for key, value in plain["evaluation"].items() if key != "quantize"}}
    assert run_key(plain) == run_key(before)
    keys = {run_key(plain | {"evaluation": plain["evaluation"] | {"quantize": how}}) for how in ("none", *QUANTIZED)}
    assert len(keys) == 1 + len(QUANTIZED)
    assert EvalRecipe(quantize="nf4").in_key()["quantize"] == "nf4"


def test_a_run_without_the_library_is_refused_before_anything_is_trained(config_of, monkeypatch):
    monkeypatch.setattr(quantization.importlib.util, "find_spec", lambda name: None)
    config = config_of("dense", evaluation={"quantize": "nf4"})
    with pytest.raises(EnvironmentProblem, match=r"needs the package bitsandbytes.*adaptive-bench\[quantize\]"):
        run(config)
    assert not list((config.out / "records").glob("*"))


def test_timings_are_of_models_that_are_not_quantized():
    with pytest.raises(UsageError, match=r"match_on 'time' with --quantize int8"):
        load_config("smoke", {"match_on": "time", "evaluation": {"quantize": "int8"}})
    with pytest.raises(UsageError, match="quantize"):
        load_config("smoke", {"evaluation": {"quantize": "int3"}})
