"""Decisions on a text are those that the engine executes, as a frame too."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inspected_text import ANSWER, PROMPT

from adaptive_bench.errors import UsageError
from adaptive_bench.model.text_decisions import encoded, pieces_of, text_decisions, visible


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


def test_at_a_dial_that_skips_nothing_everything_is_executed(model, tokenizer):
    model.dial = model.method.dial.skip_nothing
    assert model.decisions(PROMPT, tokenizer).keep.all()


def test_later_text_changes_no_earlier_decision(model, tokenizer):
    model.saving = 0.2
    prompt, answer = encoded(tokenizer, PROMPT, ANSWER)
    whole = text_decisions(model, tokenizer, prompt, answer)
    part = text_decisions(model, tokenizer, prompt, answer[:5])
    assert np.array_equal(whole.keep[: len(part.keep)], part.keep)


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
    assert first == tokenizer.bos_token and "".join(rest).strip() == (PROMPT + ANSWER).strip()


def test_an_empty_text_and_waiting_tokens_are_refused(subjects, tokenizer):
    from adaptive_bench import AdaptiveModel

    with pytest.raises(UsageError, match="got 0"):
        text_decisions(subjects.models[2], tokenizer, [])
    waiting = AdaptiveModel.build(subjects.models[2].backbone_model, "free[kv=defer]").eval()
    with pytest.raises(UsageError, match="no mask"):
        waiting.decisions(PROMPT, tokenizer)


@given(st.text(max_size=12))
def test_no_token_is_invisible(piece):
    assert visible(piece) and "\n" not in visible(piece)


def test_a_text_beyond_the_context_is_refused(model, tokenizer):
    length = model.backbone.context_length + 1
    with pytest.raises(UsageError, match=f"context of {length - 1} tokens, got {length}"):
        text_decisions(model, tokenizer, [5] * length)
