"""The paper's tables beside ours: our numbers are those of rows."""

from adaptive_bench.leaderboard.paper import STAND_INS, beside, contents, paper_beside
from adaptive_bench.leaderboard.row import Row

EXACT = "exact_match,strict-match"


def rows_of(make_row, method, scores, task="nano_math", metric=EXACT, wide=0.01, **changes):
    """Rows by saved tokens; intervals are `wide` on both sides."""
    about = {"method": method, "task": task, "metric": metric, "axis": "tokens", "phase": "all", "model": "nano"}
    return [
        Row.of(make_row(level=level, score=score, low=score - wide, high=score + wide, **about | changes))
        for level, score in scores.items()
    ]


def said(rows, table=1):
    (found,) = beside(rows, table)
    return found, found["said"]


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


def test_a_run_on_another_axis_is_not_the_papers(make_row):
    rows = rows_of(make_row, "mod", {0.0: 0.5}, axis="net")
    found, sentences = said(rows)
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


def test_quantized_and_sampled_rows_are_rows_of_their_own(make_row):
    plain = rows_of(make_row, "gateskip", {0.0: 0.8}, recipe="steps 1")
    small = rows_of(make_row, "gateskip", {0.0: 0.7}, recipe="steps 1, quantize int4")
    drawn = rows_of(make_row, "gateskip", {0.0: 0.6}, recipe="steps 1, temperature 0.7")
    found, _ = said([*plain, *small, *drawn], 7)
    assert [(line["name"], line["ours"][0]) for line in found["rows"]] == [
        ("32-bit + GateSkip", "80.0"),
        ("4-bit + GateSkip", "70.0"),
    ]


def test_forms_stand_apart_and_8_bits_are_not_the_papers(make_row):
    rows = rows_of(make_row, "gateskip", {0.0: 0.8, 0.15: 0.6}, recipe="steps 1")
    for form, scores in {"int4": {0.0: 0.6, 0.15: 0.3}, "nf4": {0.0: 0.76}, "int8": {0.0: 0.8}}.items():
        rows += rows_of(make_row, "gateskip", scores, recipe=f"steps 1, quantize {form}")
    rows += rows_of(make_row, "mod", {0.0: 0.5}, recipe="steps 1, quantize int8")
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
