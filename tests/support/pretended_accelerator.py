"""An accelerator that is none: CPU values that say they lie on `cuda:0` and behave as if they did.

Inside `pretended()` whatever is made on or moved to that device is a `Pretended` tensor. Mixing it with a tensor of the
CPU is refused as a GPU refuses it (single numbers aside), and whatever makes Python wait for the device's values is
noted. Both say where in our own code it happened.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.autograd import Variable
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("cuda:0")
engine = Variable._execution_engine
_OURS = Path(__file__).parents[2]
_CODE = ("adaptive_bench", "methods", "tests")
_READS = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__"}
# Functions whose result has a shape that depends on values.
_DATA_DEPENDENT = {"nonzero", "is_nonzero", "equal", "allclose", "masked_select", "unique", "unique_consecutive"}
_DATA_DEPENDENT |= {"bincount", "argwhere", "unique_dim", "__array__"}
# Functions that take sizes, places or values as Python numbers: one in a tensor is read.
_MAKE = {"arange", "linspace", "full", "zeros", "ones", "empty", "tensor"}
_TAKE_NUMBERS = {"new_full", "new_zeros", "new_ones", "new_empty", "new_tensor", "repeat", "expand", "view", "reshape"}
_TAKE_NUMBERS |= {"narrow", "select", "topk", "roll", "split"}  # besides the tensor they are asked of
_MIXES = {"copy_", "__set__", "_has_compatible_shallow_copy_type"}  # these take a tensor from anywhere
_TYPES = {"size", "dim", "stride", "numel", "nelement", "element_size", "data_ptr"}  # they read no value


class Mixed(RuntimeError):
    """Tensors of two devices, or of types that do not go together, met in one operation."""


class Pretended(Tensor):
    """A tensor that says it lies on the accelerator. All that happens to it is up to the `Accelerator`."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    device = property(lambda self: DEVICE)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    def detach(self):  # torch asks for this where no mode watches
        return _there(Tensor.detach(self))

    def numpy(self, *_, **__):
        raise TypeError(f"can't convert {DEVICE} device type tensor to numpy, at {_place()}")


class Accelerator(TorchFunctionMode):
    """Runs every operation on the CPU and keeps apart what lies where.

    Attributes:
        reads: What made Python wait for the device, and where in our code: `item at adaptive_bench/x.py:3`.
    """

    def __init__(self):
        super().__init__()
        self.reads: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if isinstance(function, OpOverload):  # a kernel on its way through a dispatch mode, below what is watched here
            return function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        if function == Tensor.data.__set__:
            return self._replace(*args)
        if name == "__get__" or name in _TYPES:
            found = function(*args, **kwargs)
            return _there(found) if isinstance(found, Tensor) and isinstance(args[0], Pretended) else found
        if function is Tensor.backward:  # what runs again there, runs under the same eyes
            with self:
                engine.run_backward(
                    (args[0],),
                    (torch.ones_like(args[0]),),
                    False,
                    False,
                    (),
                    allow_unreachable=True,
                    accumulate_grad=True,
                )
            return None
        tensors = list(_tensors((args, kwargs)))
        here = [tensor for tensor in tensors if isinstance(tensor, Pretended)]
        if name in ("to", "cpu", "cuda", "type_as"):
            return self._move(name, *args, **kwargs)
        if name == "__reduce_ex__":
            self._note("pickle", here)
            return function(args[0].as_subclass(Tensor), *args[1:])
        device = kwargs.get("device")
        on_device = device is not None and torch.device(device).type == DEVICE.type
        if device is not None:
            if here and not on_device:
                self._note(name, here)
            if on_device:
                kwargs = kwargs | {"device": "cpu"}
        elif here and name not in _MIXES:
            strangers = [one for one in tensors if not isinstance(one, Pretended) and one.dim() and one.numel()]
            if strangers:
                shapes = ", ".join(str(list(one.shape)) for one in strangers)
                raise Mixed(f"{name} got tensors on {DEVICE} and one on the CPU of shape {shapes}, at {_place()}")
        self._count(name, args, kwargs, here)
        try:
            found = function(*args, **kwargs)
        except RuntimeError as error:
            if here and not isinstance(error, Mixed) and "dtype" in str(error):
                raise Mixed(f"{error}, at {_place()}") from error
            raise
        if on_device or (device is None and here):
            return _put(found)
        return found

    def _replace(self, tensor, values):
        """What `Module.to` does with a parameter: the same object, elsewhere."""
        goes, is_parameter = isinstance(values, Pretended), isinstance(tensor, nn.Parameter)
        if goes != isinstance(tensor, Pretended):
            tensor.__class__ = Pretended if goes else nn.Parameter if is_parameter else Tensor
            if is_parameter and goes:
                tensor._is_param = True
        Tensor.data.__set__(tensor, values)

    def _move(self, name, tensor, *args, **kwargs):
        """`to` and its like: a copy where the device changes."""
        place, wanted = tensor.device, dict(kwargs)
        kinds = [wanted.pop("dtype")] if "dtype" in wanted else []
        places = [wanted.pop("device")] if "device" in wanted else []
        for value in args:
            if isinstance(value, Tensor):
                places.append(value.device)
                kinds.append(value.dtype)
            elif isinstance(value, torch.dtype):
                kinds.append(value)
            elif isinstance(value, torch.device | str):
                places.append(value)
        places += [DEVICE] if name == "cuda" else ["cpu"] if name == "cpu" else []
        kinds, places = ([one for one in some if one is not None] for some in (kinds, places))
        target = torch.device(places[0]) if places else place
        copy = kwargs.get("copy", False) or target.type != place.type
        if isinstance(tensor, Pretended) and target.type == "cpu":
            self._note(name, [tensor])
        if not copy and (not kinds or kinds[0] == tensor.dtype):
            return tensor
        plain = tensor.as_subclass(Tensor) if isinstance(tensor, Pretended) else tensor
        on_device = target.type == DEVICE.type
        moved = plain.to("cpu" if on_device else target, kinds[0] if kinds else tensor.dtype, copy=copy)
        return _there(moved) if on_device else moved

    def _count(self, name, args, kwargs, here):
        if name in _READS or name in _DATA_DEPENDENT or (name == "where" and len(args) + len(kwargs) == 1):
            self._note(name, here)
        if name == "repeat_interleave" and len(here) > 1 and "output_size" not in kwargs:
            self._note(name, here)
        if name in ("__getitem__", "__setitem__"):
            indices = args[1] if isinstance(args[1], tuple) else (args[1],)
            masks = [one for one in indices if isinstance(one, Tensor) and one.dtype == torch.bool]
            fills = name == "__setitem__" and (not isinstance(args[2], Tensor) or args[2].numel() == 1)
            if masks and not fills:
                self._note("boolean index", here)
            bounds = [part for one in indices if isinstance(one, slice) for part in (one.start, one.stop, one.step)]
            if any(_is_number(one) for one in (*indices, *bounds)):
                self._note("index", here)
        if name in _MAKE or name in _TAKE_NUMBERS:
            given = args if name in _MAKE else args[1:]
            if any(_is_number(one) for one in _tensors([*given, kwargs])):
                self._note(f"number for {name}", here)

    def _note(self, name, here):
        if here:
            self.reads.append(f"{name} at {_place()}")


@contextmanager
def pretended():
    """In the block there is a device `cuda:0`; gives what notes its reads."""
    accelerator = Accelerator()
    group = torch._C._group_tensors_by_device_and_dtype

    def grouped(*args):  # asked below the level at which a tensor can say where it lies
        return {
            (DEVICE if any(isinstance(one, Pretended) for one in _tensors(values)) else device, kind): values
            for (device, kind), values in group(*args).items()
        }

    with (
        mock.patch.object(torch._C, "_group_tensors_by_device_and_dtype", grouped),
        mock.patch.object(torch.cuda, "synchronize", lambda *_: None),
        mock.patch.object(torch.cuda, "get_device_name", lambda *_: "pretended accelerator"),
        mock.patch.object(torch.cuda, "reset_peak_memory_stats", lambda *_: None),
        mock.patch.object(torch.cuda, "max_memory_allocated", lambda *_: 0),
        accelerator,
    ):
        yield accelerator


def _place():
    """The innermost line of our own code that is being run."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_OURS) and path.name != Path(__file__).name:
            inside = path.relative_to(_OURS)
            if inside.parts[0] in _CODE:
                return f"{inside}:{frame.f_lineno}"
        frame = frame.f_back
    return "no line of ours"


def _is_number(value):
    """A whole or real number on the device: torch reads it wherever Python's own would do."""
    return isinstance(value, Pretended) and value.dim() == 0 and value.dtype != torch.bool


def _there(tensor):
    return tensor if isinstance(tensor, Pretended) else tensor.as_subclass(Pretended)


def _put(value):
    """A result, its tensors on the device."""
    if isinstance(value, Tensor):
        return _there(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_put, value))
    if type(value) in (tuple, list):
        return type(value)(map(_put, value))
    if type(value).__module__ == "torch.return_types":
        return type(value)(map(_put, value))
    return value


def _tensors(value):
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
