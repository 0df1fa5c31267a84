"""What the tests of several methods need: a look over a method's shoulder, and models cut short by hand."""

import copy
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from adaptive_bench.backbone import Site


@dataclass
class Watched:
    """What a method saw and decided, by site; one entry per call that asked it there.

    Attributes:
        hidden: Residual stream [B, S, H] before the site.
        keep: [B, S] tokens that execute (`None` from the method reads as all).
        decisions: The decisions themselves.
        calls: The forward call of each entry.
    """

    hidden: dict[Site, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    keep: dict[Site, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    decisions: dict[Site, list[Any]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[Site, list[Any]] = field(default_factory=lambda: defaultdict(list))


@contextmanager
def _watch(model):
    watched, decide = Watched(), model.method.decide

    def seen(view):
        decision = decide(view)
        keep = torch.ones_like(view.call.valid) if decision.keep is None else decision.keep
        watched.hidden[view.site].append(view.hidden)
        watched.keep[view.site].append(keep & view.call.valid)
        watched.decisions[view.site].append(decision)
        watched.calls[view.site].append(view.call)
        return decision

    model.method.decide = seen
    try:
        yield watched
    finally:
        del model.method.decide


@pytest.fixture
def ids(random_text):
    """[4, 12] tokens."""
    return random_text(4, 12)


@pytest.fixture
def answer(ids):
    """Continuation mask of `ids`: everything after a prompt of six tokens."""
    return (torch.arange(ids.shape[1]) >= 6).expand_as(ids)


@pytest.fixture
def writing(ids):
    """Tokens that a token of the answer is read off: the prompt's last one too."""
    return (torch.arange(ids.shape[1]) >= 5).expand_as(ids)


@pytest.fixture(scope="session")
def watch():
    """`with watch(model) as watched`: records what the method sees and decides; see `Watched`."""
    return _watch


@pytest.fixture(scope="session")
def truncated():
    """`truncated(backbone, layers)`: a Hugging Face model of the first layers, with final norm and head."""

    def make(backbone, layers):
        short = copy.deepcopy(backbone)
        short.model.layers = short.model.layers[:layers]
        short.config.num_hidden_layers = layers
        return short

    return make


@pytest.fixture(scope="session")
def depth():
    """`depth(watched)`: [B, S] layers each token executed in the first call, for methods that decide per layer."""
    return lambda watched: torch.stack([masks[0] for masks in watched.keep.values()]).sum(0)


@pytest.fixture
def batch(random_text):
    """Held-out text of several lengths, padded on the right."""
    ids, lengths = random_text(6, 14, seed=7), torch.tensor([14, 9, 12, 14, 11, 14])
    mask = torch.arange(14) < lengths[:, None]
    later = (torch.arange(14) >= 6) & mask
    return {"input_ids": ids, "attention_mask": mask.long(), "continuation_mask": later}
