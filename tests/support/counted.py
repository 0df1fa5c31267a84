"""What a ledger counted in two ways of running a model, and that it is the same."""

import copy

import numpy as np
import pytest

from adaptive_bench.store.evaluation import BUCKETS, Work

# Wherever all rows go through a branch, or more slots than there are keys, that is waste; all else is counted alike.
_EXECUTED = [Work.ATTENTION_SLOTS, Work.MLP_SLOTS, Work.PROJECTED, Work.PAIRS]


def turned(model, saved=0.3):
    """The model, with its dial where it saves so many tokens, or as many as it can."""
    model.dial = model.method.dial_for(min(saved, model.method.max_saved_tokens))
    return model


def books(model, *, wasted=False):
    """What was counted, which the ledger forgets; without what was run for nobody unless asked for."""
    counts = copy.deepcopy(model.compute_report()["counts"])
    model.reset_ledger()
    for phase in counts.values():
        phase["macs"], phase["work"] = np.array(phase["macs"]), np.array(phase["work"])
        if not wasted:
            phase["macs"] = np.delete(phase["macs"], BUCKETS.index("waste.dense"), axis=1)
            phase["work"] = np.delete(phase["work"], _EXECUTED, axis=1)
    return counts


def assert_same(ours, theirs, rtol=1e-7):
    assert ours.keys() == theirs.keys()
    for phase, counts in theirs.items():
        for name, value in counts.items():
            if name == "runs":
                assert ours[phase][name] == pytest.approx(value), phase
            else:
                np.testing.assert_allclose(ours[phase][name], value, rtol=rtol, err_msg=f"{phase} {name}")
