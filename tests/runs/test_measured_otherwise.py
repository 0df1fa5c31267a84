"""Models and answers that are measured otherwise, quantized or sampled, beside the others: with the same trainings,
under keys of their own; and bytes as an axis, which quantizing saves.
"""

import pytest

from adaptive_bench.backbone import weights as quantization
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.leaderboard.terminal import render
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.stored_calibration import names
from adaptive_bench.runs import plan, run
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.records import DialEvaluationRecord, Record


def at(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def _outputs(outcome, task):
    found = {}
    for sweep in sorted(outcome.folder.parent.parent.glob(f"records/*/eval/{task}-*")):
        found[sweep.name] = [one.output for one in DialEvaluationRecord(sweep).samples(0.0)]
    return found


def test_a_sampled_run_trains_nothing_anew_and_stands_in_a_table_of_its_own(config_of):
    greedy = run(config_of("random_skip", tasks=("nano_math",)))
    before = _outputs(greedy, "nano_math")
    hot = config_of("random_skip", tasks=("nano_math",), evaluation={"temperature": 5.0})
    sampled = run(hot)
    assert greedy.folder != sampled.folder and not sampled.failures
    home = greedy.folder.parent.parent
    assert len(list((home / "records").iterdir())) == 1, "the training is that of the greedy run"
    (own,) = before
    (more,) = _outputs(sampled, "nano_math").keys() - before.keys()
    assert _outputs(sampled, "nano_math")[own] == before[own]
    assert _outputs(sampled, "nano_math")[more] != before[own]
    assert {"temperature" in row["recipe"] for row in greedy.rows} == {False}
    assert {row["recipe"].endswith("temperature 5") for row in sampled.rows} == {True}
    shown = render([one.folder / "table.json" for one in (greedy, sampled)], wide=True)
    assert "temperature 5" in shown
    written = _outputs(sampled, "nano_math")
    assert run(hot).rows == sampled.rows and _outputs(sampled, "nano_math") == written


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
    config = config_of("gateskip", evaluation={"quantize": "int8"})
    assert not plan(config).sweeps[0].is_complete
    small = run(config)
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
    assert run(config).rows == small.rows and plan(config).sweeps[0].is_complete


@pytest.mark.parametrize("how", ["int4", "nf4"])
def test_texts_are_written_in_4_bits(config_of, how):
    pytest.importorskip({"int4": "optimum.quanto", "nf4": "bitsandbytes"}[how])
    outcome = run(config_of("gateskip", tasks=("nano_math",), evaluation={"quantize": how, "limit": 2}))
    assert not outcome.failures and {row["recipe"].endswith(f"quantize {how}") for row in outcome.rows} == {True}


def test_a_run_is_matched_on_bytes(config_of):
    changes = {"tasks": ("nano_math", "nano_qa_ll"), "match_on": "bytes", "levels": (0.0, 0.1)}
    changes |= {"evaluation": {"closeness": 0.02}}
    outcome = run(config_of("dense,random_skip", **changes))
    assert not outcome.failures
    rows = at(outcome.rows, axis="bytes", task="nano_math", metric="exact_match,strict-match")
    assert {(row["method"], row["level"], row["status"]) for row in rows} == {
        ("dense", 0.0, "ok"),
        ("dense", 0.1, "nearest"),
        ("random_skip", 0.0, "ok"),
        ("random_skip", 0.1, "ok"),
    }
    (dense,), (skipping,) = at(rows, method="dense", level=0.0), at(rows, method="random_skip", level=0.1)
    # Answers at different dial values differ in length, and so in the keys that a token sees.
    assert skipping["bytes_per_token"] == pytest.approx(0.9 * dense["bytes_per_token"], rel=0.02)
    assert skipping["saved_tokens"] > 0.1, "head and K,V of skipped tokens are read all the same"
    silent = {row["status"] for row in at(outcome.rows, task="nano_qa_ll")}
    assert silent == {"missing"}, "nothing is written there"
    assert render([outcome.folder / "table.json"]).startswith("10 % bytes saved: nano_math")


def test_a_quantized_dense_model_saves_bytes_and_no_flops(config_of):
    pytest.importorskip("torchao")
    changes = {"tasks": ("nano_math",), "levels": (0.0, 0.2), "train": {"steps": 0}, "evaluation": {"quantize": "int8"}}
    outcome = run(config_of("dense", **changes))
    by_bytes = run(config_of("dense", match_on="bytes", **changes)).rows
    assert all(row["saved"] > 0.15 and row["saved_tokens"] == 0 for row in by_bytes)
    assert {row["status"] for row in at(by_bytes, level=0.0)} == {"nearest"}, "nothing is skipped, and bytes are saved"
    (row,) = at(outcome.rows, level=0.0, metric="exact_match,strict-match")
    assert row["status"] == "ok" and row["saved_net"] == pytest.approx(0, abs=1e-12)
    plain = run(config_of("dense", **changes | {"evaluation": {}}))
    (full,) = at(plain.rows, level=0.0, metric="exact_match,strict-match")
    assert row["bytes_per_token"] < full["bytes_per_token"] and row["flops_per_token"] > 0


def test_a_run_without_the_library_is_refused_before_anything_is_trained(config_of, monkeypatch):
    monkeypatch.setattr(quantization.importlib.util, "find_spec", lambda name: None)
    config = config_of("dense", evaluation={"quantize": "nf4"})
    with pytest.raises(EnvironmentProblem, match=r"needs the package bitsandbytes.*adaptive-bench\[quantize\]"):
        run(config)
    assert not list((config.out / "records").glob("*"))
