"""What is read of methods and texts, the record of a page and the paper's gate analysis."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from inspected_text import ANSWER, PROMPT

from adaptive_bench import AdaptiveModel
from adaptive_bench.errors import UsageError
from adaptive_bench.inspection import gate_analysis as analysis
from adaptive_bench.inspection import readings
from adaptive_bench.inspection.gate_analysis import by_vocabulary, gate_analysis, modes
from adaptive_bench.inspection.readings import KINDS, inspect_texts, kinds_of, one_text, record_of, tidy
from adaptive_bench.model.text_decisions import encoded, pieces_of, text_decisions, visible


@pytest.fixture(scope="module")
def inspection(subjects):
    text = one_text(subjects, PROMPT, ANSWER, 8)
    return inspect_texts(subjects, [text], None, about="a text")


def test_savings_that_nobody_has_are_refused_and_single_ones_said(subjects):
    text = one_text(subjects, PROMPT, ANSWER, 8)
    found = inspect_texts(subjects, [text], (0.2, 0.4), about="a text")
    assert len(found.notes) == 2 and "gateskip has no dial value for 40 %" in found.notes[0]
    with pytest.raises(UsageError, match="none of the savings"):
        inspect_texts(subjects, [text], (0.9,), about="a text")


def test_decisions_that_hang_on_the_call_are_said_to(subjects):
    model = AdaptiveModel.build(subjects.models[2].backbone_model, "gateskip@paper").eval()
    text = one_text(subjects, PROMPT, ANSWER, 8)
    found = inspect_texts(replace(subjects, models=[model]), [text], None, about="a text")
    assert ["gateskip@paper decides on all tokens of a call together" in note for note in found.notes] == [True]


def test_the_model_writes_an_answer_where_none_is_given(subjects):
    prompt, answer = one_text(subjects, PROMPT, None, 6)
    assert 0 < len(answer) <= 6 and one_text(subjects, PROMPT, None, 0) == (prompt, [])
    assert one_text(subjects, PROMPT, ANSWER, 6)[0] == prompt


def test_the_record_holds_the_masks_and_what_is_said_of_them(inspection):
    record = json.loads(json.dumps(record_of(inspection), allow_nan=False))
    point = inspection.readings[0].points[2]
    shown = record["methods"][0]["points"]["0.2"]
    bits = np.unpackbits(np.frombuffer(base64.b64decode(shown["bits"]), dtype=np.uint8))
    keep = point.texts[0].keep
    assert bits[: keep.size].reshape(keep.shape).astype(bool).tolist() == keep.tolist()
    assert shown["saved"] == pytest.approx(1 - keep.mean())
    counts = [count for count, *_ in shown["by_kind"].values()]
    assert sum(counts) == len(record["pieces"]) == record["tokens"]
    scores = record["methods"][0]["scores"]
    levels = np.frombuffer(base64.b64decode(scores["bytes"]), dtype=np.uint8).reshape(keep.shape)
    low, high = scores["ranges"][5]
    given = inspection.readings[0].points[0].texts[0].scores[:, 2, 1]
    assert low + (high - low) * levels[:, 2, 1] / 254 == pytest.approx(given, abs=(high - low) / 250)
    assert record["methods"][2]["scores"] is None


def test_a_frame_has_every_decision_of_every_method(inspection):
    calibrated = [0.0, 0.1, 0.2, 0.3]  # a method is read as far as its dial was calibrated
    asked = [[point.saving for point in one.points] for one in inspection.readings]
    assert asked == [calibrated, calibrated, [*calibrated, 0.4, 0.5]]
    table = tidy(inspection)
    tokens = len(inspection.texts[0].pieces)
    assert len(table) == tokens * 12 * (4 + 4 + 6)
    rate = 1 - table.groupby(["method", "saving"])["executes"].mean()
    for reading in inspection.readings:
        for point in reading.points:
            assert rate[reading.spec, point.saving] == pytest.approx(point.saved)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_gate_analysis_says_what_the_gates_say(subjects, sign, monkeypatch):
    """With a gate that is open for BOS alone, BOS is first; with the opposite gate it is last."""
    real = analysis.inspect_texts

    def shifted(*args, **kwargs):
        found = real(*args, **kwargs)
        for point in found.readings[0].points:
            point.texts[0].scores[:] = 0.5
            point.texts[0].scores[0] = 0.5 + 0.1 * sign
        return found

    monkeypatch.setattr(analysis, "inspect_texts", shifted)
    (method,) = gate_analysis(subjects, [encoded(subjects.tokenizer, PROMPT, ANSWER)], ["a_task"])["methods"]
    places = {one["place"] for one in method["statements"]}
    assert method["spec"] == "gateskip" and {f"top-10 tokens at {share} % skipping" for share in (0, 30)} <= places
    top = [value for *_, value in method["top"]["0"]]
    assert top == sorted(top, reverse=True) and len(top) == 10
    assert {one["agrees"] for one in method["statements"]} <= {True, False, None}
    about = [one for one in method["statements"] if "BOS" in one["paper"]]
    assert [one["agrees"] for one in about] == [sign > 0] * 2
    assert ("BOS is number 1 of" in about[0]["ours"]) == (sign > 0)


def test_a_method_without_gates_has_no_gate_analysis(subjects):
    with pytest.raises(UsageError, match=r"scale a branch, but .* has none"):
        gate_analysis(replace(subjects, models=subjects.models[2:]), [([1, 5, 6], [7])], ["a_task"])


# Decisions on a text are those that the engine executes, as a frame too.


@pytest.fixture(params=[0, 1, 2], ids=["gateskip", "mod", "random_skip"])
def model(request, subjects):
    return subjects.models[request.param]


def test_what_is_shown_is_what_the_ledger_counted(model, tokenizer):
    model.saving = 0.2
    decided = model.decisions(PROMPT, tokenizer, ANSWER)
    model.reset_ledger()
    ids = torch.tensor([decided.token_ids])
    model(ids, continuation_mask=torch.arange(ids.shape[1])[None] >= decided.prompt_tokens)
    counted = model.compute_report()["saved"]["tokens"]
    assert 0 < decided.saved < 1 and decided.saved == pytest.approx(counted, abs=1e-12)
    model.dial = model.method.dial.skip_nothing
    assert model.decisions(PROMPT, tokenizer).keep.all()


def test_a_frame_says_the_same(model, tokenizer):
    model.saving = 0.2
    decided = model.decisions(PROMPT, tokenizer, ANSWER)
    tidy, tokens = decided.tidy(), len(decided.keep)
    assert tidy[(tidy.layer == 3) & (tidy.branch == "mlp")]["executes"].tolist() == decided.keep[:, 3, 1].tolist()
    assert list(dict.fromkeys(zip(tidy.position, tidy.token, strict=True))) == list(enumerate(decided.pieces))
    assert len(tidy) == decided.keep.size and 1 - tidy["executes"].mean() == pytest.approx(decided.saved)
    one = tidy[(tidy.position == 7) & (tidy.layer == 2) & (tidy.branch == "attention")]
    assert one["executes"].tolist() == [decided.keep[7, 2, 0]]
    assert tidy.groupby("part")["position"].nunique().to_dict() == {
        "prompt": decided.prompt_tokens,
        "answer": tokens - decided.prompt_tokens,
    }


def test_a_score_is_what_the_method_ranks_by(subjects, tokenizer):
    """GateSkip skips the lowest mean gates, MoD the lowest routers' outputs, in prompts and answers apart."""
    for model in subjects.models[:2]:
        model.saving = 0.2
        decided = model.decisions(PROMPT, tokenizer, ANSWER)
        for part in (slice(0, decided.prompt_tokens), slice(decided.prompt_tokens, None)):
            for layer in range(decided.keep.shape[1]):
                keep, scores = decided.keep[part, layer, 0], decided.scores[part, layer, 0]
                if keep.all() or not keep.any():
                    continue
                assert scores[~keep].max() < scores[keep].min()
    assert subjects.models[2].decisions(PROMPT, tokenizer).scores is None


def test_pieces_are_the_text(tokenizer):
    prompt, answer = encoded(tokenizer, PROMPT, ANSWER)
    first, *rest = pieces_of(tokenizer, prompt + answer)
    assert all(visible(piece) and "\n" not in visible(piece) for piece in ("", "\n", " \t", *rest))
    assert first == tokenizer.bos_token and "".join(rest).strip() == (PROMPT + ANSWER).strip()


def test_an_empty_text_one_beyond_the_context_and_waiting_tokens_are_refused(subjects, tokenizer):
    length = subjects.models[2].backbone.context_length + 1
    with pytest.raises(UsageError, match=f"context of {length - 1} tokens, got {length}"):
        text_decisions(subjects.models[2], tokenizer, [5] * length)
    with pytest.raises(UsageError, match="got 0"):
        text_decisions(subjects.models[2], tokenizer, [])
    waiting = AdaptiveModel.build(subjects.models[2].backbone_model, "free[kv=defer]").eval()
    with pytest.raises(UsageError, match="no mask"):
        waiting.decisions(PROMPT, tokenizer)


# Kinds of tokens, and numbers on masks and scores against their definitions.
MASKS = arrays.arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 4), st.just(2)))


@pytest.mark.parametrize(
    ("piece", "kind"),
    [
        ("1,000", "digits"),
        ("<=", "operator"),
        (" The", "function word"),
        (" apples", "other word"),
        (" 猫", "other word"),
        (" ?", "punctuation"),
        ("\n", "space"),
    ],
)
def test_the_kind_of_a_token(piece, kind):
    assert kinds_of(["<s>", piece], [1, 9], ends={2})[1] == kind


def test_first_and_end_go_by_place_and_identity():
    assert kinds_of(["A", " cat", "</s>"], [7, 8, 2], ends={2}) == ["first", "other word", "end"]


def test_a_piece_has_the_kind_of_its_word_or_number():
    """`with|in` is one function word, `in|fer` another word, whatever the tokenizer cuts."""
    pieces = ["<s>", " didn", "'", "t", " dog", "'s", " $", "3", ".", "50", ".", " 4", "=", "4"]
    assert kinds_of(pieces, range(len(pieces)), ends=())[1:] == [
        *["function word"] * 3, *["other word"] * 2, "punctuation", *["digits"] * 3, "punctuation",
        "digits", "operator", "digits",
    ]  # fmt: skip
    kinds = kinds_of(["<s>", " with", "in", " in", "fer", " be", "cause"], range(7), ends=())
    assert kinds[1:] == ["function word"] * 2 + ["other word"] * 2 + ["function word"] * 2


@given(st.lists(st.text(max_size=6), min_size=1, max_size=20))
def test_every_text_has_kinds(pieces):
    kinds = kinds_of(pieces, range(len(pieces)), ends=())
    assert len(kinds) == len(pieces) and set(kinds) <= set(KINDS)


@given(MASKS, st.data())
def test_rates_of_groups_add_up_to_the_whole(keep, data):
    groups = data.draw(st.lists(st.sampled_from("abc"), min_size=len(keep), max_size=len(keep)))
    found = readings.skipped_by(keep, groups)
    assert sum(count for count, *_ in found.values()) == len(keep)
    whole = sum(count * (attention + mlp) / 2 for count, attention, mlp in found.values()) / len(keep)
    assert whole == pytest.approx(1 - keep.mean())
    layers = readings.skipped_by_layer(keep)
    assert np.mean(layers) == pytest.approx(1 - keep.mean())


def test_vocabulary_items_have_the_means_of_their_occurrences():
    values = np.array([0.2, 0.4, 0.9, np.nan])
    found = by_vocabulary(values, [5, 5, 6, 7])
    assert found == [(6, 1, 0.9), (5, 2, pytest.approx(0.3))]


def test_a_density_has_its_modes_where_the_values_are():
    values = np.concatenate([np.random.default_rng(0).normal(middle, 0.01, 200) for middle in (0.2, 0.7)])
    assert modes(values) == pytest.approx([0.2, 0.7], abs=0.05)
    assert modes(np.array([0.0] * 10 + [1.0])) == [0, 1]  # the ends are modes, too
    assert modes(np.full(9, 0.5)) == [] and modes(np.array([0.1, np.nan])) == []
