"""Times one method over its dial against the plain model: latency of both phases, saving in time, memory.

The saving in time is 1 - t_method / t_plain, as every saving a share of the plain model's cost. Over a whole request
it is that of one prompt and its new tokens together: `total = prefill + new * decode`. What was saved in tokens and
FLOPs is read off the ledger of the very calls that were timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from adaptive_bench.model.adaptive_model import AdaptiveModel
from adaptive_bench.model.timing.clock import Quantiles, speedups
from adaptive_bench.model.timing.hardware import memory_meaning, peak_memory
from adaptive_bench.model.timing.phases import (
    decode_in_turns,
    drive_adaptive,
    drive_plain,
    pass_once,
    prefill_in_turns,
)

_MEMORY_STEPS = 8  # new tokens of the pass whose memory is measured


@dataclass(frozen=True)
class TimedPoint:
    """One method at one dial value.

    Attributes:
        requested: Share of saved tokens the dial was set for.
        dial: Dial value, in its own unit.
        saved: Measured shares `tokens`, `core`, `net`, `executed`, over prompt and new tokens.
        prefill_s, decode_s: Latency of one batch of prompts, and of one more token for each row.
        prefill_speedup, decode_speedup: Plain time over ours, within the same round.
        peak_memory_bytes: See `Timing.memory`.
    """

    requested: float
    dial: float
    saved: dict[str, float]
    prefill_s: Quantiles
    decode_s: Quantiles
    prefill_speedup: Quantiles
    decode_speedup: Quantiles
    peak_memory_bytes: int | None


@dataclass(frozen=True)
class Timing:
    """One method over its dial, and the plain model it was timed in turn with.

    Attributes:
        batch, prompt, new: Rows, tokens of a prompt, new tokens.
        prefill_s, decode_s: Latency of the plain model.
        peak_memory_bytes: Of the plain model.
        memory: What memory means on this device.
    """

    batch: int
    prompt: int
    new: int
    prefill_s: Quantiles
    decode_s: Quantiles
    peak_memory_bytes: int | None
    memory: str
    points: tuple[TimedPoint, ...]

    def saved_time(self, point: TimedPoint) -> dict[str, float]:
        """Share of the plain model's time that is saved: in `prefill`, in `decode` and in `total`."""
        prefill, decode = 1 / point.prefill_speedup.median, 1 / point.decode_speedup.median
        weight = self.prefill_s.median / self._total_s(self.prefill_s, self.decode_s)
        total = weight * prefill + (1 - weight) * decode
        return {"prefill": 1 - prefill, "decode": 1 - decode, "total": 1 - total}

    def tokens_per_s(self, point: TimedPoint | None = None) -> float:
        """New tokens of the whole batch per second, the time of the prompts included; of the plain model by default."""
        source = self if point is None else point
        return self.batch * self.new / self._total_s(source.prefill_s, source.decode_s)

    def to_json(self) -> dict[str, Any]:
        """Plain values: `plain` and `points`."""
        plain = {
            "prefill_s": self.prefill_s.to_json(),
            "decode_s": self.decode_s.to_json(),
            "tokens_per_s": self.tokens_per_s(),
            "peak_memory_bytes": self.peak_memory_bytes,
        }
        return {"memory": self.memory, "plain": plain, "points": [self._point(point) for point in self.points]}

    def _point(self, point: TimedPoint) -> dict[str, Any]:
        return {
            "requested": point.requested,
            "dial": point.dial,
            "saved": point.saved,
            "saved_time": self.saved_time(point),
            "prefill_s": point.prefill_s.to_json(),
            "decode_s": point.decode_s.to_json(),
            "prefill_speedup": point.prefill_speedup.to_json(),
            "decode_speedup": point.decode_speedup.to_json(),
            "tokens_per_s": self.tokens_per_s(point),
            "peak_memory_bytes": point.peak_memory_bytes,
        }

    def _total_s(self, prefill_s: Quantiles, decode_s: Quantiles) -> float:
        return prefill_s.median + self.new * decode_s.median


def time_model(
    plain: PreTrainedModel, model: AdaptiveModel, savings: Sequence[float], tokens: Tensor, *, prompt: int, rounds: int
) -> Timing:
    """Time a method at some shares of saved tokens, and the plain model in turn with all of them.

    Args:
        plain: The Hugging Face model, in `eval()` mode; `model` may wrap the same one.
        model: In `eval()` mode and calibrated for the savings. Its dial and ledger are left changed.
        savings: Shares of saved tokens the dial is set for; beyond the end of the dial its end is taken.
        tokens: [B, prompt + new], which every variant reads.
        prompt: Tokens of each row that are there from the start.
        rounds: Rounds of prefill; decoding has one round per new token.
    """
    method, device = model.method, tokens.device
    reachable = sorted({round(min(saving, method.max_saving), 6) for saving in savings})
    dials = [method.checked_dial(saving) for saving in reachable]
    drives = {"plain": drive_plain(plain)}
    drives |= {f"{saving:g}": drive_adaptive(model, dial) for saving, dial in zip(reachable, dials, strict=True)}
    new = tokens.shape[1] - prompt
    prefill = prefill_in_turns(drives, tokens[:, :prompt], rounds, room=new)
    decode = decode_in_turns(drives, tokens, prompt)
    reports = {name: drive.ledger.report() for name, drive in drives.items() if drive.ledger is not None}
    part = tokens[:, : prompt + min(new, _MEMORY_STEPS)]
    memory = {
        name: peak_memory(lambda drive=drive: pass_once(drive, part, prompt), device)  # type: ignore[misc]
        for name, drive in drives.items()
    }
    points = tuple(
        TimedPoint(
            requested=saving,
            dial=dial,
            saved={axis: reports[name]["saved"][axis] for axis in ("tokens", "core", "net", "executed")},
            prefill_s=Quantiles.of(prefill[name]),
            decode_s=Quantiles.of(decode[name]),
            prefill_speedup=speedups(prefill["plain"], prefill[name]),
            decode_speedup=speedups(decode["plain"], decode[name]),
            peak_memory_bytes=memory[name],
        )
        for name, saving, dial in zip(reports, reachable, dials, strict=True)
    )
    return Timing(
        batch=len(tokens),
        prompt=prompt,
        new=new,
        prefill_s=Quantiles.of(prefill["plain"]),
        decode_s=Quantiles.of(decode["plain"]),
        peak_memory_bytes=memory["plain"],
        memory=memory_meaning(device),
        points=points,
    )
