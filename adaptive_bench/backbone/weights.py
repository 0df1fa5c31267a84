"""Weights of a decoder: quantizes them, and detects whether they have changed.

Linear maps are quantized by established libraries. Weights are rounded directly: nothing is trained, and no text is
read.

* `int8`: torchao, weight-only; symmetric, one scale per output. Products have the input's dtype.
* `nf4`: bitsandbytes' NormalFloat of QLoRA (arXiv 2305.14314): blocks of 64, scales in 8 bits (double quantization).
* `int4`: quanto's affine `qint4`, min-max in groups of 128 inputs (the whole row if it is shorter, and smaller groups
  if 128 does not divide it), as the GateSkip paper's code does for "4-bit".

With `nf4` and `int4`, each call brings the weights back to the model's own dtype before multiplying.

Inputs are not rounded. With rounded inputs (torchao's dynamic int8, one scale per token), tokens stay independent, but
a last bit that changes with the order of summation can move an input to the neighbouring code. On the nano model,
packed and masked execution then differed by up to 0.1 in logits that spread by 4, while the engine promises 1e-4.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from operator import methodcaller
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.validation import Quantization

# The module that holds each library's code, and the name of its distribution.
_LIBRARIES: Mapping[Quantization, tuple[str, str]] = {
    "int8": ("torchao.quantization", "torchao"),
    "nf4": ("bitsandbytes", "bitsandbytes"),
    "int4": ("optimum.quanto", "optimum-quanto"),
}


def check_installed(how: Quantization) -> None:
    """Raise a problem if the library of a quantization is not installed."""
    if how == "none":
        return
    module, distribution = _LIBRARIES[how]
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing
        found = False
    if not found:
        raise EnvironmentProblem(
            f"Evaluating with quantize {how} needs the package {distribution}, which is not installed. Install it with "
            f"`pip install 'adaptive-bench[quantize]'`, or leave --quantize out."
        )


def library_versions(how: Quantization) -> dict[str, str]:
    """The library behind a quantization, with its version."""
    return {} if how == "none" else {_LIBRARIES[how][1]: version(_LIBRARIES[how][1])}


def quantize_layers(layers: nn.ModuleList, how: Quantization) -> None:
    """Quantize the weights of every linear map in decoder layers. Norms stay unchanged."""
    check_installed(how)
    for name, module in layers.named_modules():
        if hasattr(module, "base_layer"):
            raise UsageError(
                f"Linear maps are quantized as they are, got one that adapters wrap ({name}). Merge them first: "
                f"merge_and_unload() of the peft model."
            )
        # A subclass (`BroughtBack`) or a wrapped tensor (torchao's).
        if isinstance(module, nn.Linear) and (type(module) is not nn.Linear or not is_plain(module.weight)):
            raise UsageError(f"Weights are quantized once, but {name} is so already. Load the model anew.")
    _FORMS[how](layers)


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is an ordinary one, and not a subclass that wraps several tensors."""
    return type(tensor) in (Tensor, nn.Parameter)


def plain_parts(tensor: Tensor) -> list[Tensor]:
    """The tensors that hold a quantized tensor's values (codes, scales, shifts); any other tensor itself."""
    # A wrapper of torch itself is no quantized weight but, for example, a shard.
    if is_plain(tensor) or type(tensor).__module__.startswith("torch.") or not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [part for name in names for part in plain_parts(getattr(tensor, name))]


def stored_bytes(linear: nn.Module) -> int:
    """Bytes of a linear map's weight, including scales and shifts, but not constants that all maps share."""
    weight: Any = linear.weight
    scales: int = getattr(linear, "scale_bytes", 0)
    return scales + sum(part.numel() * part.element_size() for part in plain_parts(weight))


def _int8(layers: nn.ModuleList) -> None:
    torchao: Any = importlib.import_module("torchao.quantization")
    torchao.quantize_(layers, torchao.Int8WeightOnlyConfig())


def _nf4(layers: nn.ModuleList) -> None:
    library: Any = importlib.import_module("bitsandbytes.functional")
    for name, linear in _linears(layers):
        # Quantized as one row: on a CPU the library (0.50.2) dequantizes a matrix as if blocks restarted in every row.
        # They do not, so the result would be wrong for rows that are no multiple of a block.
        flat = linear.weight.detach().flatten()
        codes, state = library.quantize_4bit(flat, compress_statistics=True, quant_type="nf4")
        scale_bytes = state.absmax.nbytes + state.state2.absmax.nbytes + state.offset.nbytes
        bring_back = partial(_nf4_brought_back, state=state, shape=linear.weight.shape)
        layers.set_submodule(name, BroughtBack(linear, codes, bring_back, scale_bytes))


def _nf4_brought_back(codes: Tensor, *, state: Any, shape: torch.Size) -> Tensor:
    return importlib.import_module("bitsandbytes.functional").dequantize_4bit(codes, state).view(shape)


def _int4(layers: nn.ModuleList) -> None:
    quanto: Any = importlib.import_module("optimum.quanto")
    # On a CPU the library would compile this one function in C++ at the first call, which takes minutes and fails
    # without a compiler.
    extensions: Any = importlib.import_module("optimum.quanto.library.extensions.extension")
    extensions.get_extension("quanto_cpp")._lib = SimpleNamespace(unpack=_unpacked)
    for name, linear in _linears(layers):
        made = quanto.QLinear.from_module(linear, weights=quanto.qint4)
        made.freeze()
        layers.set_submodule(name, BroughtBack(linear, made.weight.detach(), methodcaller("dequantize")))


class BroughtBack(nn.Linear):
    """A linear map that dequantizes its weight in each call, in the same way on every device. The libraries' own
    modules use another kernel for one row than for many, or do not run in torch's inference mode.

    Args:
        linear: The map to replace.
        weight: The codes.
        bring_back: Turns the codes into the weight [outputs, inputs].
        scale_bytes: Bytes of scales that belong to the weight but are stored elsewhere.
    """

    def __init__(
        self, linear: nn.Linear, weight: Tensor, bring_back: Callable[[Tensor], Tensor], scale_bytes: int = 0
    ) -> None:
        # Not that of `nn.Linear`, which would allocate a weight of its own.
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = nn.Parameter(weight, requires_grad=False), linear.bias
        self.scale_bytes, self._bring_back = scale_bytes, bring_back
        self.train(linear.training)

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, self._bring_back(self.weight), self.bias)


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    """Unpack codes of `bits` bits from bytes [N, ...] into [N * 8 / bits, ...], lowest bits first."""
    return torch.cat([packed >> shift & 2**bits - 1 for shift in range(0, 8, bits)])


def _linears(layers: nn.ModuleList) -> list[tuple[str, nn.Linear]]:
    return [(name, module) for name, module in layers.named_modules() if isinstance(module, nn.Linear)]


_FORMS: Mapping[Quantization, Callable[[nn.ModuleList], None]] = {
    "int8": _int8,
    "nf4": _nf4,
    "int4": _int4,
}
