"""How often a decode step makes Python wait for a device: a fixed number of times, however many layers there are.

The device is pretended (`tests/support/pretended_accelerator.py`); `test_accelerator` counts whole steps of writing.
"""

import pytest
import torch
from pretended_accelerator import DEVICE, pretended
from torch.utils._python_dispatch import TorchDispatchMode

READING_KERNELS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")


class Kernels(TorchDispatchMode):
    """Notes every kernel with the shapes of its tensors."""

    def __init__(self):
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        shapes = [tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor)]
        self.calls.append((str(function), shapes))
        return function(*args, **(kwargs or {}))


def step_of(model, rows, length=9):
    """A function that runs one decode step after a prompt."""
    ids = torch.randint(5, 90, (rows, length), generator=torch.Generator().manual_seed(0)).to(model.device)
    cache = model.new_cache(rows, capacity=length + 8)
    model(ids, past_key_values=cache, use_cache=True)
    return lambda: model(ids[:, :1], past_key_values=cache, use_cache=True, logits_to_keep=1)


def reads_in(model, rows=4):
    with torch.no_grad(), pretended() as accelerator:
        step = step_of(model.to(DEVICE), rows)
        step()  # tables and buffers that are made once
        accelerator.reads.clear()
        step()
    return accelerator.reads


def deeper(make_model, make_backbone, spec, layers, saved):
    model = make_model(spec, backbone=make_backbone("llama", num_hidden_layers=layers))
    model.dial = model.method.dial_for(min(saved, model.method.max_saved_tokens))
    return model


AHEAD = ["random_skip", *(f"random_skip[kv={kv}]" for kv in ("copy_below", "evict")), "position_skip[kv=evict]"]
AHEAD += ["prompt_router", "free@paper"]
NEVER = ["dense", "static_depth", "layerskip", "gateskip[shape=scalar]", "gateskip[kv=evict]", "gateskip@paper"]
NEVER += ["skiplayer", "skipgpt", "informed_routing", "flexidepth", "d_llm", "dash_halting", "calm"]


@pytest.mark.parametrize("spec", [*AHEAD, *NEVER])
def test_a_fixed_number_of_reads(spec, make_model, make_backbone):
    """Decisions known ahead come to the host at once; those made from hidden states stay where they are. One text alone
    is no exception.
    """
    for layers, rows in ((4, 4), (6, 4), (4, 1), (6, 1)):
        names = reads_in(deeper(make_model, make_backbone, spec, layers, 0.2), rows)
        assert len(names) == (spec in AHEAD), (rows, names)


@pytest.mark.parametrize("spec", ["dense", "gateskip[shape=scalar]", "random_skip", "position_skip"])
def test_the_masked_executor_never_waits(spec, make_model, make_backbone):
    """Its shapes depend on no decision."""
    for layers in (2, 6):
        model = deeper(make_model, make_backbone, spec, layers, 0.3 if spec != "dense" else 0.0)
        model.executor = "masked"
        assert not reads_in(model)


def test_the_books_of_many_steps_are_made_with_one_look(make_model, make_backbone):
    """Nothing is lost in between: whoever asks sees them all."""
    model = deeper(make_model, make_backbone, "gateskip", 2, 0.3)
    with torch.no_grad(), pretended() as accelerator:
        step = step_of(model.to(DEVICE), rows=2)
        accelerator.reads.clear()
        model.reset_ledger()
        for _ in range(100):
            step()
        assert len(accelerator.reads) == 1 and "ledger" in accelerator.reads[0]
        assert model.compute_report()["counts"]["decode"]["eligible"] == [[200, 200]] * 2
        assert len(accelerator.reads) == 2


def test_two_dense_steps_run_the_same_kernels(make_model, make_backbone):
    """Nothing is decided by values: a step differs from the next only in the number of keys."""
    step = step_of(deeper(make_model, make_backbone, "dense", 3, 0.0), rows=2)
    step()
    runs = []
    for _ in range(2):
        with torch.no_grad(), Kernels() as kernels:
            step()
        runs.append([name for name, _ in kernels.calls])
        assert not [name for name, _ in kernels.calls if any(read in name for read in READING_KERNELS)]
    assert runs[0] == runs[1]
