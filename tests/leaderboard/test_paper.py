"""The stored tables are the paper's, and ours beside them are read between measured points as it reads them."""

import os
from pathlib import Path

import numpy as np
import pytest

from adaptive_bench.config import load_config
from adaptive_bench.leaderboard.boards import Board, Source
from adaptive_bench.leaderboard.paper import STAND_INS, beside, contents, paper_beside, paper_tables
from adaptive_bench.leaderboard.row import Row
from adaptive_bench.leaderboard.swept_answers import Answers, DialPoint, SweptAnswers

EXACT = "exact_match,strict-match"
SOURCE = Path(os.environ["ADAPTIVE_BENCH_SHARED"]) / "seed/gateskip.tex"


def rows_of(make_row, method, scores, task="nano_math", metric=EXACT, **changes):
    """A run with a point for each share of saved tokens, and a row that was read off the first of them."""
    seconds = changes.pop("seconds", None)
    level, score = next(iter(scores.items()))
    about = {
        "method": method,
        "task": task,
        "metric": metric,
        "axis": "tokens",
        "phase": "all",
        "model": "nano",
        "seeds": 1,
    }
    row = Row(**make_row(**about | changes | {"level": level, "score": score}))
    points = tuple(
        DialPoint({"tokens": saved}, {}, {metric: np.array([one, one])}, seconds) for saved, one in scores.items()
    )
    return [(row, Answers({(method, "bench", task): [SweptAnswers(1, None, (0, 1), points)]}))]


def said(runs, table=1):
    sources = [Source(Path(), None, [(row.task, row.conditions)], answers) for row, answers in runs]
    (found,) = beside(Board([row for row, _ in runs], sources), table)
    return found, found["said"]


def test_values_lie_on_the_line_between_measured_points(make_row):
    """By hand: 15 % is half way between 10 and 20 %, (.8 + .2) / 2; beyond 20 % there is nothing."""
    found, _ = said(rows_of(make_row, "mod", {0.0: 0.9, 0.2: 0.2, 0.1: 0.8}))
    (line,) = [line for line in found["rows"] if line["label"]]
    assert [one for one in line["ours"] if one != "–"] == ["90.0", "85.0", "80.0", "50.0", "20.0"]


def having(sentences, text):
    return [one for one in sentences if text in one]


def test_a_mean_is_over_all_tasks_of_its_kind_and_stands_in_the_papers_row_and_column(make_row):
    rows = rows_of(make_row, "mod", {0.0: 0.5, 0.15: 0.3})
    rows += rows_of(make_row, "mod", {0.0: 0.7}, task="nano_qa")
    rows += rows_of(make_row, "mod", {0.6: 0.4}, task="nano_qa_ll", metric="acc,none")
    found, sentences = said(rows)
    line = next(line for line in found["rows"] if line["label"] == "mod")
    assert (line["name"], line["theirs"][0]) == ("MoD", "20.83 ± 5.22")
    assert line["ours"] == ["60.0", *["–"] * 9, "40.0"]
    assert "the log-likelihood tasks are nano_qa_ll" in having(sentences, "Here the")[0]


def test_a_run_that_knows_nothing_of_skipped_tokens_is_not_the_papers(make_row):
    (((row, some),)) = rows_of(make_row, "mod", {0.0: 0.5}, axis="net")
    point = some.sweeps["mod", "bench", "nano_math"][0].points[0]
    point.saved["net"] = point.saved.pop("tokens")
    found, sentences = said([(row, some)])
    assert all(line["label"] is None for line in found["rows"])
    assert len(sentences) == 1 and "not measured here" in sentences[0] and "--config nano_paper" in sentences[0]


def test_bits_of_a_text_stand_for_perplexity(make_row):
    text = {"task": "nano_text", "metric": "bits_per_byte,none"}
    found, sentences = said(rows_of(make_row, "gateskip", {0.1: 1.1}, **text), 11)
    assert sentences[-1] == "Generated tasks stand in for the paper's: nano_text for lambada."
    (line,) = [one for one in found["rows"] if one["label"]]
    assert [value for value in line["ours"] if value != "–"] == ["1.100"]


def test_a_model_other_than_the_papers_is_named(make_row):
    for model in ("meta-llama/Llama-3.2-1B", "Llama-3.2-1B"):
        rows = rows_of(make_row, "mod", {0.0: 0.20, 0.05: 0.5}, model=model, task="gsm8k")
        assert not having(said(rows)[1], "orders are compared, not numbers")
    assert having(said(rows_of(make_row, "mod", {0.0: 0.20}))[1], "orders are compared, not numbers")


def test_seconds_are_those_of_all_tasks_together(make_row):
    rows = rows_of(make_row, "gateskip", {0.05: 0.5}, seconds=6.0)
    rows += rows_of(make_row, "gateskip", {0.05: 0.5}, seconds=1.5, task="nano_qa")
    line = next(line for line in said(rows, 10)[0]["rows"] if line["label"])
    assert "7.5" in line["ours"]


def test_forms_stand_apart_and_8_bits_are_not_the_papers(make_row):
    rows = rows_of(make_row, "gateskip", {0.0: 0.8, 0.15: 0.6}, recipe="steps 1")
    for form, scores in {"int4": {0.0: 0.6, 0.15: 0.3}, "nf4": {0.0: 0.76}, "int8": {0.0: 0.8}}.items():
        rows += rows_of(make_row, "gateskip", scores, recipe=f"steps 1, quantize {form}")
    rows += rows_of(make_row, "mod", {0.0: 0.5}, recipe="steps 1, quantize int8")
    rows += rows_of(make_row, "gateskip", {0.0: 0.6}, recipe="steps 1, temperature 0.7")
    found, _ = said(rows, 7)
    assert [(line["name"], line["label"], line["ours"][0]) for line in found["rows"]] == [
        ("32-bit + GateSkip", "gateskip", "80.0"),
        ("4-bit + GateSkip", "gateskip, int4", "60.0"),
        ("4-bit + GateSkip", "gateskip, nf4", "76.0"),
        ("not in the paper", "gateskip, int8", "80.0"),
    ]


def test_a_table_over_models_finds_each_in_its_row(make_row):
    rows = rows_of(make_row, "gateskip", {0.0: 0.8}, model="meta-llama/Llama-3.2-3B", backbone="a")
    rows += rows_of(make_row, "gateskip", {0.0: 0.6}, model="google/gemma-2-2b", backbone="b")
    found, _ = said(rows, 6)
    shown = {line["name"]: line["ours"][0] for line in found["rows"]}
    assert shown == {"Llama-3.2-1B": "–", "Llama-3.2-3B": "80.0", "Llama-3.1-8B": "–", "Gemma-2-2B": "60.0"}


def test_a_pruned_model_has_rows_of_its_own_beside_the_whole_one(make_row):
    values = {"task": "nano_qa_ll", "metric": "acc,none"}
    rows = rows_of(make_row, "gateskip", {0.0: 0.6, 0.15: 0.5}, **values)
    rows += rows_of(make_row, "dense", {0.0: 0.7}, **values)
    rows += rows_of(make_row, "gateskip", {0.0: 0.4, 0.15: 0.3}, **values, model="nano-pruned")
    rows += rows_of(make_row, "dense", {0.0: 0.2}, **values, model="nano-pruned")
    found, sentences = said(rows, 9)
    shown = {line["name"]: line["ours"] for line in found["rows"]}
    assert shown == {
        "GateSkip": ["60.0", "50.0", "–", "–"],
        "GateSkip + ShortGPT pruning": ["40.0", "30.0", "–", "–"],
        "Default Llama1b + ShortGPT pruning": ["20.0", "–", "–", "–"],
    }
    assert having(sentences, "ours nano, nano-pruned: orders are compared")


def test_models_that_the_paper_has_not_are_rows_of_their_own(make_row):
    rows = rows_of(make_row, "gateskip", {0.0: 0.8, 0.25: 0.4})
    rows += rows_of(make_row, "gateskip", {0.0: 0.8, 0.25: 0.6}, model="nano_qwen3")
    rows += rows_of(make_row, "gateskip", {0.0: 0.9}, model="meta-llama/Llama-3.2-3B")
    rows += rows_of(make_row, "mod", {0.0: 0.9})
    found, _ = said(rows, 6)
    assert {line["label"] for line in found["rows"]} - {None} == {
        "gateskip",
        "gateskip of nano",
        "gateskip of nano_qwen3",
    }


def test_megabytes_are_those_of_the_parameters_that_a_method_adds(make_row):
    found, _ = said(rows_of(make_row, "gateskip[shape=scalar]", {0.0: 0.5}, parameters_added=1000), 13)
    line = next(line for line in found["rows"] if line["label"])
    assert (line["name"], line["ours"][1]) == ("Individual scalar", "0.004")


def test_contents_and_plain_values(make_row):
    assert [one["table"] for one in contents()] == [str(number) for number in range(1, 14)]
    (plain,), problems = paper_beside([], 7)
    assert plain["model"] is None and problems == [] and plain["rows"][0]["theirs"][0] == "45.0"
    assert [group["columns"] for group in plain["groups"]][1] == ["0%", "15%", "30%", "45%", "60%"]
    assert set(STAND_INS.values()) <= {"nano_math", "nano_qa", "nano_qa_ll", "nano_text"}


def test_every_table_is_rectangular():
    tables = paper_tables()
    assert [table["table"] for table in tables] == list(range(1, 14))
    for table in tables:
        assert len(table["asks"]) == len(table["columns"])
        assert {len(row["values"]) for row in table["rows"]} == {len(table["columns"])}
        assert sum(columns for _, columns in table["groups"]) in (0, len(table["columns"]))


def test_known_values():
    first = {row["name"]: row["values"] for row in paper_tables()[0]["rows"]}
    assert first["GateSkip (ours)"][3] == "22.14 ± 1.36"
    assert first["Llama-1b (random skipping)"][:2] == ["", "10.30 ± 0.54"]


@pytest.mark.skipif(not SOURCE.is_file(), reason="needs the paper's source, which is not part of the repository")
def test_every_value_stands_in_the_paper():
    text = SOURCE.read_text(encoding="utf-8")
    for table in paper_tables():
        for row in table["rows"]:
            for value in filter(None, row["values"]):
                mean, _, deviation = value.partition(" ± ")
                assert (f"\\meanstd{{{mean}}}{{{deviation}}}" if deviation else mean) in text
        if table["source"].startswith("tab:"):
            assert f"\\label{{{table['source']}}}" in text


def test_every_command_names_presets_that_have_the_levels_of_their_table():
    for table in paper_tables():
        commands = [*table["presets"]["nano"], *table["presets"]["paper"]]
        assert commands
        for command in commands:
            config = load_config(command.split("--config ")[1].split()[0])
            assert config.match_on == "tokens" and config.match_phase == "all"
        for command in table["presets"]["nano"]:
            levels = load_config(command.split("--config ")[1].split()[0]).levels
            asked = {level for what, level in table["asks"] if what is not None}
            assert {round(level, 6) for level in asked} <= {round(level, 6) for level in levels}
