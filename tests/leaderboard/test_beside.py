"""The paper's tables beside ours: our numbers are those of rows, and every sentence needs its condition."""

import pytest

from adaptive_bench.leaderboard.agreement import said_of
from adaptive_bench.leaderboard.beside import STAND_INS, beside
from adaptive_bench.leaderboard.paper_beside import contents, paper_beside
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
    return found, said_of(found)


def having(sentences, text):
    return [one for one in sentences if text in one]


def test_a_mean_is_over_all_tasks_of_its_kind_and_stands_in_the_papers_row_and_column(make_row):
    rows = rows_of(make_row, "mod", {0.0: 0.5, 0.15: 0.3})
    rows += rows_of(make_row, "mod", {0.0: 0.7}, task="nano_qa")
    rows += rows_of(make_row, "mod", {0.6: 0.4}, task="nano_qa_ll", metric="acc,none")
    found, sentences = said(rows)
    line = next(line for line in found.lines if line.label == "mod")
    assert (line.name, line.shown[0]) == ("MoD", "20.83 ± 5.22")
    assert [None if value is None else value.shown for value in line.ours][:4] == ["60.0", None, None, None]
    assert line.ours[-1].shown == "40.0" and line.ours[0].low == pytest.approx(59)
    assert "the log-likelihood tasks are nano_qa_ll" in having(sentences, "Here the")[0]
    (missing,) = having(sentences, "Not measured here")
    assert "GateSkip (ours)" in missing and "MoD," not in missing


def test_a_run_on_another_axis_is_not_the_papers(make_row):
    rows = rows_of(make_row, "mod", {0.0: 0.5}, axis="net")
    found, sentences = said(rows)
    assert all(line.label is None for line in found.lines)
    assert len(sentences) == 1 and "not measured here" in sentences[0] and "--config nano_paper" in sentences[0]


ORDERED = ({0.15: 0.6}, {0.15: 0.2})


@pytest.mark.parametrize(
    ("gateskip", "mod", "wide", "verdict"),
    [
        (*ORDERED, 0.01, "1 stand in the same order here, 0 in the other one, and 0 are not told apart"),
        (*reversed(ORDERED), 0.01, "0 stand in the same order here, 1 in the other one, and 0 are not told apart"),
        (*ORDERED, 0.3, "0 stand in the same order here, 0 in the other one, and 1 are not told apart"),
    ],
)
def test_an_order_is_the_papers_only_where_intervals_are_apart(make_row, gateskip, mod, wide, verdict):
    rows = rows_of(make_row, "gateskip", gateskip, wide=wide) + rows_of(make_row, "mod", mod, wide=wide)
    _, sentences = said(rows)
    (found,) = having(sentences, "1 pair of values")
    assert verdict in found
    (standing,) = having(sentences, "the paper has GateSkip (ours) ahead of MoD and behind none")
    side = {0.01: "ahead of MoD (mod)" if gateskip[0.15] > mod[0.15] else "behind MoD (mod)"}
    assert side.get(wide, "not told apart from MoD (mod)") in standing


def test_what_the_paper_does_not_tell_apart_is_no_pair(make_row):
    """CALM and SkipLayer at 0 % are, CALM's two variants lie within their deviations."""
    rows = rows_of(make_row, "calm", {0.0: 0.9}) + rows_of(make_row, "calm[confidence=state]", {0.0: 0.1})
    assert not having(said(rows)[1], "stand in the same order")
    rows += rows_of(make_row, "skiplayer", {0.0: 0.05})
    assert having(said(rows)[1], "2 pairs of values")


def test_lower_is_better_where_the_paper_has_perplexity(make_row):
    text = {"task": "nano_text", "metric": "bits_per_byte,none"}
    rows = rows_of(make_row, "gateskip", {0.1: 1.1}, **text) + rows_of(make_row, "random_skip", {0.1: 1.9}, **text)
    found, sentences = said(rows, 11)
    assert found.stand_ins == {"lambada": "nano_text"}
    assert having(sentences, "nano_text for lambada")
    assert "1 stand in the same order" in having(sentences, "Perplexity: of 1 pair")[0]
    assert not having(sentences, "Accuracy: of")


@pytest.mark.parametrize(("low", "said_so"), [(0.2, "with intervals apart"), (0.5, "do not tell apart")])
def test_a_flat_row_of_the_paper_is_held_to_ours(make_row, low, said_so):
    _, sentences = said(rows_of(make_row, "layerskip", {0.0: 0.5, 0.25: low}))
    (found,) = having(sentences, "at every level in the paper")
    assert found.startswith("Generative Benchmarks: LayerSkip scores 10.65 ± 1.55") and said_so in found
    assert not having(said(rows_of(make_row, "layerskip", {0.0: 0.5}))[1], "at every level")
    assert not having(said(rows_of(make_row, "mod", {0.0: 0.5, 0.25: 0.1}))[1], "at every level")


def test_what_is_kept_is_told_of_the_papers_method_from_0_percent_on(make_row):
    (found,) = having(said(rows_of(make_row, "gateskip@paper", {0.0: 0.8, 0.25: 0.2}))[1], "keeps")
    assert "keeps 75 % of its own score at 0 % in the paper (23.53 ± 1.28 to 17.67 ± 0.74)" in found
    assert "here gateskip@paper 25 % (80.0 to 20.0)" in found
    assert not having(said(rows_of(make_row, "gateskip", {0.05: 0.8, 0.25: 0.2}))[1], "keeps")
    assert not having(said(rows_of(make_row, "gateskip", {0.0: 0.0, 0.25: 0.2}))[1], "keeps")
    assert not having(said(rows_of(make_row, "mod", {0.0: 0.8, 0.25: 0.2}))[1], "keeps")


def test_numbers_are_held_to_each_other_on_the_papers_model_alone(make_row):
    here = {"model": "meta-llama/Llama-3.2-1B", "task": "gsm8k"}
    rows = rows_of(make_row, "mod", {0.0: 0.20, 0.05: 0.5}, **here)
    assert having(said(rows)[1], "1 of 2 values lie within two of the paper's standard deviations")
    folder = rows_of(make_row, "mod", {0.0: 0.20}, model="Llama-3.2-1B", task="gsm8k")
    assert having(said(folder)[1], "1 of 1 values lie within")
    other = rows_of(make_row, "mod", {0.0: 0.20})
    assert having(said(other)[1], "orders are compared, not numbers") and not having(said(other)[1], "lie within")


def test_seconds_are_told_as_the_factor_between_the_first_and_the_last_level(make_row):
    rows = [
        row
        for level, seconds in ((0.05, 6.0), (0.7, 2.0))
        for row in rows_of(make_row, "gateskip", {level: 0.5}, seconds=seconds)
    ]
    (found,) = having(said(rows, 10)[1], "latency is divided by")
    assert "latency is divided by 1.35, " in found and found.endswith(" here divided by 3.00.")
    assert not having(said(rows[:1], 10)[1], "latency is divided by")


def test_quantized_and_sampled_rows_are_rows_of_their_own(make_row):
    plain = rows_of(make_row, "gateskip", {0.0: 0.8}, recipe="steps 1")
    small = rows_of(make_row, "gateskip", {0.0: 0.7}, recipe="steps 1, quantize int4")
    drawn = rows_of(make_row, "gateskip", {0.0: 0.6}, recipe="steps 1, temperature 0.7")
    found, _ = said([*plain, *small, *drawn], 7)
    assert [(line.name, line.ours[0].shown) for line in found.lines] == [
        ("32-bit + GateSkip", "80.0"),
        ("4-bit + GateSkip", "70.0"),
    ]
    found, sentences = said(plain, 7)
    assert having(sentences, "Not measured here: 4-bit + GateSkip")


def test_forms_stand_apart_and_8_bits_are_not_the_papers(make_row):
    rows = rows_of(make_row, "gateskip", {0.0: 0.8, 0.15: 0.6}, recipe="steps 1")
    for form, scores in {"int4": {0.0: 0.6, 0.15: 0.3}, "nf4": {0.0: 0.76}, "int8": {0.0: 0.8}}.items():
        rows += rows_of(make_row, "gateskip", scores, recipe=f"steps 1, quantize {form}")
    rows += rows_of(make_row, "mod", {0.0: 0.5}, recipe="steps 1, quantize int8")
    found, sentences = said(rows, 7)
    assert [(line.name, line.label, line.ours[0].shown) for line in found.lines] == [
        ("32-bit + GateSkip", "gateskip", "80.0"),
        ("4-bit + GateSkip", "gateskip, int4", "60.0"),
        ("4-bit + GateSkip", "gateskip, nf4", "76.0"),
        ("not in the paper", "gateskip, int8", "80.0"),
    ]
    kept = having(sentences, "of the score of gateskip")
    assert "at 0, 15 % of skipped tokens gateskip, int4 keeps 75, 50 %" in kept[0]
    assert "4-bit + GateSkip keeps 94.4, 96.1 % of 32-bit + GateSkip in the paper" in kept[0]
    assert "nf4 keeps 95 %" in kept[1] and "int8 keeps 100 % of the score of gateskip." in kept[2]
    assert not having(sentences, "all 5 values") and not any(
        form in one for one in said(rows, 1)[1] for form in ("int4",)
    )


@pytest.mark.parametrize(("other", "differ"), [(0.7, 1), (0.8, 0)])
def test_equal_log_likelihoods_of_the_paper_are_held_to_ours(make_row, other, differ):
    task = {"task": "nano_qa_ll", "metric": "acc,none"}
    rows = rows_of(make_row, "gateskip", {0.0: 0.8}, recipe="steps 1", **task)
    rows += rows_of(make_row, "gateskip", {0.0: other}, recipe="steps 1, quantize nf4", **task)
    (found,) = having(said(rows, 7)[1], "all 5 values of 4-bit + GateSkip are those of 32-bit + GateSkip in the paper")
    assert f"{differ} of 1 of gateskip, nf4 differ here" in found


def test_a_table_over_models_finds_each_in_its_row(make_row):
    rows = rows_of(make_row, "gateskip", {0.0: 0.8}, model="meta-llama/Llama-3.2-3B", backbone="a")
    rows += rows_of(make_row, "gateskip", {0.0: 0.6}, model="google/gemma-2-2b", backbone="b")
    found, _ = said(rows, 6)
    shown = {line.name: None if line.ours[0] is None else line.ours[0].shown for line in found.lines}
    assert shown == {"Llama-3.2-1B": None, "Llama-3.2-3B": "80.0", "Llama-3.1-8B": None, "Gemma-2-2B": "60.0"}


def test_a_pruned_model_has_rows_of_its_own_beside_the_whole_one(make_row):
    values = {"task": "nano_qa_ll", "metric": "acc,none"}
    rows = rows_of(make_row, "gateskip", {0.0: 0.6, 0.15: 0.5}, **values)
    rows += rows_of(make_row, "dense", {0.0: 0.7}, **values)
    rows += rows_of(make_row, "gateskip", {0.0: 0.4, 0.15: 0.3}, **values, model="nano-pruned")
    rows += rows_of(make_row, "dense", {0.0: 0.2}, **values, model="nano-pruned")
    found, sentences = said(rows, 9)
    shown = {line.name: [value and value.shown for value in line.ours] for line in found.lines}
    assert shown == {
        "GateSkip": ["60.0", "50.0", None, None],
        "GateSkip + ShortGPT pruning": ["40.0", "30.0", None, None],
        "Default Llama1b + ShortGPT pruning": ["20.0", None, None, None],
    }
    assert having(sentences, "ours nano, nano-pruned: orders are compared")


def test_models_that_the_paper_has_not_are_rows_of_their_own_and_say_what_they_keep(make_row):
    rows = rows_of(make_row, "gateskip", {0.0: 0.8, 0.25: 0.4})
    rows += rows_of(make_row, "gateskip", {0.0: 0.8, 0.25: 0.6}, model="nano_qwen3")
    rows += rows_of(make_row, "gateskip", {0.0: 0.9}, model="meta-llama/Llama-3.2-3B")
    rows += rows_of(make_row, "mod", {0.0: 0.9})
    found, sentences = said(rows, 6)
    assert {line.label for line in found.lines} - {None} == {"gateskip", "gateskip of nano", "gateskip of nano_qwen3"}
    (kept,) = having(sentences, "the paper's models keep 74 to 94 %")
    assert "gateskip of nano 50 % (80.0 to 40.0), gateskip of nano_qwen3 75 % (80.0 to 60.0)" in kept
    assert not having(said(rows[:2], 9)[1], "the paper's models keep")


def test_the_default_stands_once_in_what_is_kept_and_pairs_stay_in_their_section(make_row):
    rows = rows_of(make_row, "gateskip", {0.0: 0.8, 0.15: 0.4}) + rows_of(
        make_row, "gateskip[shape=scalar]", {0.0: 0.5, 0.15: 0.3}
    )
    _, sentences = said(rows, 5)
    assert len(having(sentences, "keeps")) == 1
    assert "of 2 pairs" in having(sentences, "stand in the same order")[0]


def test_variants_of_a_method_are_held_to_each_other_in_the_same_semantics_alone(make_row):
    rows = rows_of(make_row, "gateskip", {0.15: 0.8}) + rows_of(make_row, "gateskip", {0.15: 0.4}, semantics="paper")
    rows += rows_of(make_row, "gateskip[shape=scalar]", {0.15: 0.3}, semantics="paper")
    _, sentences = said(rows, 5)
    assert "of 1 pair of values" in having(sentences, "stand in the same order")[0]
    (standing,) = having(sentences, "ahead of Scalar gates (")
    assert "here gateskip@paper is ahead of Scalar gates (gateskip[shape=scalar]@paper), behind none" in standing


def test_megabytes_are_those_of_the_parameters_that_a_method_adds(make_row):
    found, _ = said(rows_of(make_row, "gateskip[shape=scalar]", {0.0: 0.5}, parameters_added=1000), 13)
    line = next(line for line in found.lines if line.label)
    assert (line.name, line.ours[1].shown) == ("Individual scalar", "0.004")


def test_contents_and_plain_values(make_row):
    assert [one["table"] for one in contents()] == [str(number) for number in range(1, 14)]
    (plain,), problems = paper_beside([], 7)
    assert plain["model"] is None and problems == [] and plain["rows"][0]["theirs"][0] == "45.0"
    assert [group["columns"] for group in plain["groups"]][1] == ["0%", "15%", "30%", "45%", "60%"]
    assert set(STAND_INS.values()) <= {"nano_math", "nano_qa", "nano_qa_ll", "nano_text"}
