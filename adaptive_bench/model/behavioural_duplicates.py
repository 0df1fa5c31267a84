"""Finds specs that do the same: a parameter that changes nothing is a mistake, in the spec or in the method.

`behaviour` digests what a model does with a text, `duplicate_warnings` compares the digests of several specs. Both know
nothing of how a model came about: the conformance suite asks about models it trained for a few steps, a run about its
own.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from adaptive_bench.method import method_class
from adaptive_bench.model.adaptive_model import AdaptiveModel
from adaptive_bench.model.recording import recorded_decisions
from adaptive_bench.spec import MethodSpec


@torch.no_grad()
def behaviour(model: AdaptiveModel, text: Mapping[str, Tensor], dials: Iterable[float]) -> str:
    """Digest of every decision and every logit at some dials, bit for bit. The model's dial comes back as it was.

    Args:
        text: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S].
    """
    digest, before = hashlib.sha256(), model.dial
    for dial in dials:
        model.dial = dial
        with recorded_decisions(model.method) as decisions:
            logits = model(**text).logits[text["attention_mask"].bool()]
        for site, decision in decisions:
            digest.update(f"{site}".encode())
            for part in (decision.keep, decision.scale, decision.input_scale):
                digest.update(_bytes(part))
        digest.update(_bytes(logits))
    model.dial = before
    return digest.hexdigest()


def _bytes(tensor: Tensor | None) -> bytes:
    return b"none" if tensor is None else tensor.detach().double().cpu().numpy().tobytes()


def behavioural_duplicates(behaviours: Mapping[MethodSpec, str]) -> list[list[MethodSpec]]:
    """Groups of specs with equal digests, two or more each."""
    groups: defaultdict[str, list[MethodSpec]] = defaultdict(list)
    for spec, digest in behaviours.items():
        groups[digest].append(spec)
    return [group for group in groups.values() if len(group) > 1]


def duplicate_warnings(behaviours: Mapping[MethodSpec, str]) -> list[str]:
    """One sentence per group of specs that do the same and do not say the same.

    Two semantics that agree, and a parameter set to what its default `None` stands for, say the same; rules that may
    pick the same layers are no mistake.
    """
    warnings = []
    for group in behavioural_duplicates(behaviours):
        distinct: list[MethodSpec] = []
        for spec in group:
            if not any(says_the_same(spec, other) for other in distinct):
                distinct.append(spec)
        if len(distinct) > 1:
            names = ", ".join(map(str, distinct[:-1])) + f" and {distinct[-1]}"
            warnings.append(
                f"{names} made the same decisions and gave the same logits on the same text, so what tells them apart "
                "changes nothing. Check that the method reads that parameter, and leave one of them out."
            )
    return warnings


def says_the_same(one: MethodSpec, other: MethodSpec) -> bool:
    """Whether two specs differ only in semantics, in parameters whose default, `None`, leaves the choice open, and in
    those whose values may agree (`MethodConfig.may_agree`).
    """
    config = method_class(one).Config
    mine, theirs = ({key: value for key, value in spec.params if key not in config.may_agree} for spec in (one, other))
    if one.name != other.name or any(mine[key] != theirs[key] for key in mine.keys() & theirs.keys()):
        return False
    fields = config.model_fields
    return all(fields[key].default is None for key in mine.keys() ^ theirs.keys())
