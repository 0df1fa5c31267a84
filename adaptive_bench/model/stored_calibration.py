"""Stores calibrations beside the weights of a trained model: thresholds, measured savings, and chosen dial values; and
notices that weights have changed since something was measured on them.

A checkpoint's own files are written once, when its training ends. Calibrations come later, one per method spec that
uses the weights and per calibration text. So each calibration is a separate file, which appears by one rename:
`calibration/<spec>/<name>.safetensors`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from adaptive_bench.backbone import plain_parts
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.method import Method
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.manifest import is_of_run, make_again

POOLED: Final = "pooled"
_PER_AXIS = 8  # a sample takes at least this many values along each axis of a tensor (or all if it has fewer)
FOLDER, _SUFFIX, _ABOUT = "calibration", ".safetensors", "about"  # `_ABOUT` is the key of the file's metadata


@dataclass(frozen=True)
class StoredCalibration:
    """The result of calibrating a method on one text."""

    text: str  # its digest
    thresholds: Mapping[str, Tensor]  # the state of `Thresholds`
    table: Mapping[float, float]  # measured pairs of a dial's travel and its saving
    dials: Mapping[float, float]  # dial values by the saving for which they were chosen
    fitted: Mapping[str, Tensor] = field(default_factory=dict)  # what `Method.fit` measured

    @classmethod
    def of(cls, method: Method, dials: Mapping[float, float], text: str) -> StoredCalibration:
        """The current calibration of a method."""
        thresholds = {} if method.thresholds is None else method.thresholds.state()
        fitted = {} if method.fitted is None else method.fitted.state()
        return cls(text, thresholds, dict(method.dial_table.measured), dict(dials), fitted)

    def give_to(self, method: Method) -> None:
        """Load the calibration into a method."""
        if method.thresholds is not None and self.thresholds:
            method.thresholds.load(self.thresholds)
        if method.fitted is not None and self.fitted:
            method.fitted.load(self.fitted)
        method.dial_table.measured = dict(self.table)


def names(folder: Path, spec: MethodSpec) -> list[str]:
    """Names of the stored calibrations of a spec, sorted."""
    return sorted(unquote(path.name.removesuffix(_SUFFIX)) for path in _home(folder, spec).glob(f"*{_SUFFIX}"))


def choose(folder: Path, spec: MethodSpec, wanted: str) -> str | None:
    """The name of the calibration to load: `wanted`, or for `auto` the pooled one, else the only one, else `None`."""
    known = names(folder, spec)
    if wanted == "auto":
        return POOLED if POOLED in known else known[0] if len(known) == 1 else None
    if not known and is_of_run(folder) and (problem := why_none(folder, spec)) is not None:
        raise problem
    if wanted not in known:
        raise UsageError(
            f"A stored calibration of {spec} in {folder} is one of {', '.join(known) or 'none'}, got {wanted!r}. "
            f"{'Name one of these' if known else 'Leave it out, or call model.calibrate(batches, savings)'}."
        )
    return wanted


def why_none(folder: Path, spec: MethodSpec) -> UsageError | EnvironmentProblem | None:
    """The error to raise later, if a calibration is needed, because `auto` chose none; `None` if none was expected."""
    if known := names(folder, spec):
        return UsageError(
            f"{folder} holds several calibrations of {spec}, but none was chosen. Load it with calibration=... (on the "
            f"command line --calibration), one of: {', '.join(known)}."
        )
    if not is_of_run(folder):
        return None
    return EnvironmentProblem(
        f"A run stores the calibration of {spec} beside the weights, but there is "
        f"none in {str(folder / FOLDER)!r}. {make_again(folder)}"
    )


def write(folder: Path, spec: MethodSpec, name: str, calibration: StoredCalibration) -> None:
    """Store a calibration, merged with an earlier calibration on the same text."""
    if not folder.is_dir():
        raise UsageError(
            f"A calibration is stored beside its model's weights, but there is no folder {str(folder)!r}. Call "
            f"model.save_pretrained(folder) first."
        )
    path = _path(folder, spec, name)
    if path.is_file() and (before := read(folder, spec, name)).text == calibration.text:
        calibration = _joined(before, calibration)
    tensors = flat({"thresholds": calibration.thresholds, "fitted": calibration.fitted})
    tensors |= {"table": _pairs(calibration.table), "dials": _pairs(calibration.dials)}
    about = {"spec": str(spec), "name": name, "text": calibration.text}
    # A single metadata key, since safetensors writes several keys in varying order.
    atomic.write_bytes(path, save(tensors, metadata={_ABOUT: json.dumps(about)}))


def copy(source: Path, target: Path, spec: MethodSpec) -> None:
    """Copy every stored calibration of a spec into another folder with the same weights."""
    if names(source, spec):
        shutil.copytree(_home(source, spec), _home(target, spec))


def read(folder: Path, spec: MethodSpec, name: str) -> StoredCalibration:
    """Read a stored calibration."""
    path = _path(folder, spec, name)
    try:
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
            text = json.loads(file.metadata()[_ABOUT])["text"]
        table, dials = (dict(map(tuple, tensors.pop(key).tolist())) for key in ("table", "dials"))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise EnvironmentProblem(
            f"A stored calibration must be readable, got {type(error).__name__} in {path}: {error}. "
            f"{make_again(folder)}"
        ) from error
    thresholds, fitted = parts(tensors, "thresholds", "fitted")
    return StoredCalibration(text, thresholds, table, dials, fitted)


def flat(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors of several parts in one mapping, as stored in a file: `part.name`."""
    return {f"{part}.{name}": value.contiguous() for part, own in parts.items() for name, value in own.items()}


def parts(tensors: Mapping[str, Tensor], *names: str) -> list[dict[str, Tensor]]:
    """The parts that `flat` put into one mapping."""
    starts = [f"{name}." for name in names]
    return [{key.removeprefix(one): value for key, value in tensors.items() if key.startswith(one)} for one in starts]


def _joined(before: StoredCalibration, after: StoredCalibration) -> StoredCalibration:
    """Both calibrations merged; for the same share or travel the later measurement counts."""
    thresholds = dict(after.thresholds)
    if before.thresholds and after.thresholds:
        pairs = [zip(one["shares"].tolist(), one["values"], strict=True) for one in (before.thresholds, thresholds)]
        # By share, in ascending order as `Thresholds` needs them.
        rows = dict(sorted((dict(pairs[0]) | dict(pairs[1])).items()))
        shares = torch.tensor([*rows], dtype=torch.float64)
        thresholds = {"shares": shares, "values": torch.stack([*rows.values()])}
    table, dials = {**before.table, **after.table}, {**before.dials, **after.dials}
    return StoredCalibration(after.text, thresholds, table, dials, after.fitted or before.fitted)


def _pairs(values: Mapping[float, float]) -> Tensor:
    return torch.tensor(sorted(values.items()), dtype=torch.float64).reshape(-1, 2)


def _home(folder: Path, spec: MethodSpec) -> Path:
    return folder / FOLDER / quote(str(spec), safe="[]=,@")  # readable: specs have these characters


def _path(folder: Path, spec: MethodSpec, name: str) -> Path:
    return _home(folder, spec) / f"{quote(name, safe='')}{_SUFFIX}"


class Snapshot:
    """A snapshot of weights, in an order that does not change, to detect later whether they have changed.

    Weights count as unchanged if they are the same tensors, nothing wrote into them (torch counts writes), and a sample
    of their values is the same. The sample detects writes that torch does not count: those to `parameter.data`, by
    which peft merges adapters, and those of fused optimizers. A new dtype or device does not count as a change.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._tensors: tuple[Tensor, ...] | None = tuple(tensors)
        self._writes = [_writes(tensor) for tensor in self._tensors]
        self._sampled = _sample(self._tensors)

    def holds(self, tensors: Iterable[Tensor]) -> bool:
        """Whether these are the weights of the snapshot, with the same values."""
        found, then = tuple(tensors), self._tensors
        if then is None or [*map(id, found)] != [*map(id, then)] or [*map(_writes, found)] != self._writes:
            return False
        # Only tensors without values (on the device `meta`).
        if not self._sampled:
            return True
        now = _sample(found)
        # If the weights were rounded to another dtype since, the sample is rounded likewise before comparing.
        before = [one.to(other) for one, other in zip(self._sampled, now, strict=True)]
        one, other = (torch.cat([part.to(now[0].device) for part in parts]) for parts in (before, now))
        return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Copy the snapshot with its model: the copy refers to the copied tensors if the snapshot still held."""
        tensors = self._tensors
        # `holds` compares identities, so a copy has to be taken anew of the copied tensors.
        return _copied, (tensors if tensors is not None and self.holds(tensors) else None,)


def _copied(tensors: tuple[Tensor, ...] | None) -> Snapshot:
    # `None` stands for a snapshot that did not hold: its copy must not hold either.
    found = Snapshot(tensors or ())
    found._tensors = tensors
    return found


def _writes(tensor: Tensor) -> int:
    """The number of writes into a tensor that torch counted; 0 for inference tensors, where it counts none."""
    return 0 if tensor.is_inference() else tensor._version


def _sample(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Some values of each tensor, spread evenly over all its axes; tensors without values are left out."""
    return [
        tensor.detach()[tuple(slice(None, None, max(1, size // _PER_AXIS)) for size in tensor.shape)].flatten().clone()
        for whole in tensors
        for tensor in plain_parts(whole)
        if tensor.numel() and not tensor.is_meta
    ]
