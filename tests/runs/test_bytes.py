"""Bytes as an axis: what a written token reads less than in the dense model in fp32."""

import pytest

from adaptive_bench.config_file import load_config
from adaptive_bench.errors import UsageError
from adaptive_bench.leaderboard.terminal import render
from adaptive_bench.runs import run


def at(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


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


def test_bytes_have_no_phases():
    with pytest.raises(UsageError, match="match_on 'bytes'"):
        load_config("smoke", {"match_on": "bytes", "match_phase": "decode"})
