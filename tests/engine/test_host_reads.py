"""A decode step reads the device a fixed number of times, however many layers there are; shapes stay what they are."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

READS = {"item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "is_nonzero", "nonzero", "equal"}
READING_KERNELS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")


class HostReads(TorchFunctionMode):
    """Counts what makes Python wait for a tensor, by name."""

    def __init__(self):
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name in READS:
            self.names.append(name)
        indexed = name in ("__getitem__", "__setitem__") and isinstance(args[1], torch.Tensor | tuple)
        if indexed:
            indices = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(index, torch.Tensor) and index.dtype == torch.bool for index in indices):
                self.names.append("boolean index")
        return function(*args, **(kwargs or {}))


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
    ids = torch.randint(5, 90, (rows, length), generator=torch.Generator().manual_seed(0))
    cache = model.new_cache(rows, capacity=length + 8)
    model(ids, past_key_values=cache, use_cache=True)
    return lambda: model(ids[:, :1], past_key_values=cache, use_cache=True, logits_to_keep=1)


def reads_in(model, rows=4):
    step = step_of(model, rows)
    step()  # tables and buffers that are made once
    with torch.no_grad(), HostReads() as counter:
        step()
    return counter.names


def deeper(make_model, make_backbone, spec, layers, saved):
    model = make_model(spec, backbone=make_backbone("llama", num_hidden_layers=layers))
    model.dial = model.method.dial_for(saved)
    return model


@pytest.mark.parametrize(
    ("spec", "saved", "reads"),
    [
        ("dense", 0.0, 0),
        ("random_skip", 0.3, 1),
        ("random_skip[kv=copy_below]", 0.3, 1),
        ("random_skip[kv=evict]", 0.3, 2),
        ("static_depth", 0.5, 2),
        ("layerskip", 0.5, 2),
    ],
)
def test_a_fixed_number_of_reads(spec, saved, reads, make_model, make_backbone):
    """Decisions known ahead come to the host at once; eviction adds one look at what was visible."""
    for layers in (2, 6):
        names = reads_in(deeper(make_model, make_backbone, spec, layers, saved))
        assert len(names) == reads, names


@pytest.mark.parametrize("spec", ["gateskip[shape=scalar]", "skiplayer"])
def test_decisions_from_hidden_states_are_read_once_each(spec, make_model, make_backbone):
    """How many rows execute is a shape: it has to be known before the branch runs, so once per site that decides."""
    for layers in (2, 6):
        model = make_model(spec, backbone=make_backbone("llama", num_hidden_layers=layers))
        model.dial = model.method.dial_for(0.3)
        sites = layers * (2 if model.method.unit == "branch" else 1)
        assert len(reads_in(model)) <= sites


@pytest.mark.parametrize("spec", ["dense", "gateskip[shape=scalar]", "random_skip"])
def test_the_masked_executor_never_waits(spec, make_model, make_backbone):
    """Its shapes depend on no decision: the masks are read together when the call has ended."""
    for layers in (2, 6):
        model = make_model(spec, backbone=make_backbone("llama", num_hidden_layers=layers))
        model.dial = model.method.dial_for(min(0.3, model.method.max_saved_tokens))
        model.executor = "masked"
        assert len(reads_in(model)) <= 1


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
