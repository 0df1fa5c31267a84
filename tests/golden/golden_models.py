"""What single models compute: those of every family of backbones, and those whose tokens have others' decisions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from adaptive_bench import registry
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.interventions import collect_decisions, standing_between
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing.subject import CALIBRATION_TEXT, SHARES, Subject, Text, calibrate, random_text, spread

LENGTHS = (20, 13, 17)
SHUFFLED = ("gateskip", "calm", "free")
# Texts that have no tokens of some kind: others stand in for those.
WITHOUT_A_KIND = {"prompts alone": False, "answers alone": True}
_IN_FAMILIES = ("gateskip", "gateskip[kv=copy_below]", "gateskip[kv=evict]", "random_skip")
_PROMPT, _DECODED, _LOGITS = 8, 3, 8


def families() -> list[str]:
    """Those of this distribution."""
    return [name for name in registry.names("families") if not registry.is_foreign("families", name)]


def of_family(family: str) -> dict[str, Any]:
    """Logits with nothing skipped and with something, read at once by either executor, and decoded."""
    found: dict[str, Any] = {}
    for spec in _IN_FAMILIES:
        model = _ready(spec, family)
        text = random_text(LENGTHS, seed=5)
        model.dial = model.method.dial.skip_nothing
        dense = _last(model, text)
        _skip(model)
        read = {}
        for executor in ("masked", "packed"):
            model.executor = executor
            read[executor] = _last(model, text)
        model.executor = None
        model.reset_ledger()
        found[spec] = {"dense": dense, **read, "decoded": decoded(model, text), "macs": model.compute_report()["macs"]}
    return found


def of_shuffled(name: str, answers: bool | None = None) -> dict[str, Any]:
    """Of a model whose tokens have the decisions of others: who executes what, logits, and what it costs.

    Args:
        answers: Whether the tokens those are from are all an answer's, or all a prompt's; `None` for both kinds.
    """
    model = _ready(name, "llama")
    _skip(model)
    text = random_text(LENGTHS, seed=5)
    others = CALIBRATION_TEXT.arguments
    if answers is not None:
        others = others | {"continuation_mask": others["attention_mask"].bool() & answers}
    with torch.no_grad(), recorded_decisions(model.method):
        bank = collect_decisions(model, [others])
    model.reset_ledger()
    with standing_between(model, bank):
        logits = _last(model, text)
        written = decoded(model, text)
    report = model.compute_report()
    kept = {site: int(keep.sum()) for site, keep in bank.keep.items()}
    return {
        "bank": {"counts": list(bank.counts), "kept": {str(site): count for site, count in kept.items()}},
        "logits": logits,
        "decoded": written,
        "macs": report["macs"],
        "saved": report["saved"],
    }


@torch.no_grad()
def decoded(model: AdaptiveModel, text: Text) -> list[float]:
    """Sizes of the logits of tokens that are fed one by one after a prompt that was read at once, [rows * tokens]."""
    prompt = text.prefix(_PROMPT)
    mask, logits = prompt.attention_mask, []
    cache = model(prompt.input_ids, mask, use_cache=True, logits_to_keep=1, phase="prefill").past_key_values
    for step in range(_DECODED):
        ids = text.input_ids[:, _PROMPT + step : _PROMPT + step + 1]
        mask = torch.ones_like(ids)
        out = model(ids, mask, past_key_values=cache, use_cache=True, continuation_mask=mask.bool(), phase="decode")
        cache = out.past_key_values
        logits.append(out.logits[:, -1])
    return _sizes(torch.stack(logits, dim=1))


def _ready(spec: str, family: str) -> AdaptiveModel:
    model = Subject(MethodSpec.parse(spec), family).build()
    spread(model)
    calibrate(model)
    return model


def _skip(model: AdaptiveModel) -> None:
    model.dial = model.method.dial_for(SHARES[0] * model.method.max_saved_tokens)


@torch.no_grad()
def _last(model: AdaptiveModel, text: Text) -> list[float]:
    """Sizes of the logits of the last token of each row, [rows]."""
    return _sizes(model(**text.arguments).logits[torch.arange(len(LENGTHS)), -1])


def _sizes(logits: Tensor) -> list[float]:
    """Norms of the first logits of each token: processors round single ones, near zero, by more than their share."""
    found: list[float] = logits[..., :_LOGITS].norm(dim=-1).flatten().tolist()
    return found
