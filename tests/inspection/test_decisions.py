"""What is read of methods and texts, the record of a page and the paper's gate analysis."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from inspected_text import ANSWER, PROMPT

from adaptive_bench import AdaptiveModel
from adaptive_bench.errors import UsageError
from adaptive_bench.inspection.decisions import inspect_texts, one_text, record_of, tidy
from adaptive_bench.inspection.gate_analysis import gate_analysis
from adaptive_bench.model.text_decisions import encoded


@pytest.fixture(scope="module")
def inspection(subjects):
    text = one_text(subjects, PROMPT, ANSWER, 8)
    return inspect_texts(subjects, [text], None, about="a text")


def test_a_method_is_read_as_far_as_its_dial_was_calibrated(inspection):
    assert [[point.saving for point in one.points] for one in inspection.readings] == [
        [0.0, 0.1, 0.2, 0.3],
        [0.0, 0.1, 0.2, 0.3],
        [0.0, 0.1, 0.2, 0.3, 0.4, 0.5],
    ]


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
    table = tidy(inspection)
    tokens = len(inspection.texts[0].pieces)
    assert len(table) == tokens * 12 * (4 + 4 + 6)
    rate = 1 - table.groupby(["method", "saving"])["executes"].mean()
    for reading in inspection.readings:
        for point in reading.points:
            assert rate[reading.spec, point.saving] == pytest.approx(point.saved)


def test_the_gate_analysis_says_what_the_gates_say(subjects):
    """With a gate that is open for BOS alone, BOS is first; with the opposite gate it is last."""
    prompt, answer = encoded(subjects.tokenizer, PROMPT, ANSWER)
    found = gate_analysis(subjects, [(prompt, answer)], ["a_task"])
    assert [one["spec"] for one in found["methods"]] == ["gateskip"]
    (method,) = found["methods"]
    places = [one["place"] for one in method["statements"]]
    assert "top-10 tokens at 0 % skipping" in places and "top-10 tokens at 30 % skipping" in places
    top = [value for *_, value in method["top"]["0"]]
    assert top == sorted(top, reverse=True) and len(top) == 10
    assert {one["agrees"] for one in method["statements"]} <= {True, False, None}


@pytest.mark.parametrize("sign", [1, -1])
def test_the_statement_on_bos_follows_its_gates(subjects, sign, monkeypatch):
    import adaptive_bench.inspection.gate_analysis as analysis

    prompt, answer = encoded(subjects.tokenizer, PROMPT, ANSWER)
    real = analysis.inspect_texts

    def shifted(*args, **kwargs):
        found = real(*args, **kwargs)
        for reading in found.readings[:1]:
            for point in reading.points:
                point.texts[0].scores[:] = 0.5
                point.texts[0].scores[0] = 0.5 + 0.1 * sign
        return found

    monkeypatch.setattr(analysis, "inspect_texts", shifted)
    statements = gate_analysis(subjects, [(prompt, answer)], ["a_task"])["methods"][0]["statements"]
    about = [one for one in statements if "BOS" in one["paper"]]
    assert [one["agrees"] for one in about] == [sign > 0] * 2
    assert ("BOS is number 1 of" in about[0]["ours"]) == (sign > 0)


def test_a_method_without_gates_has_no_gate_analysis(subjects):
    with pytest.raises(UsageError, match=r"scale a branch, but .* has none"):
        gate_analysis(replace(subjects, models=subjects.models[2:]), [([1, 5, 6], [7])], ["a_task"])
