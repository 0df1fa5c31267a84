"""Records of `adaptive-bench time --json`."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from adaptive_bench.model.timing.clock import Quantiles


class Setting(TypedDict):
    """What a time belongs to: times of different settings are not compared."""

    device: str
    device_name: str
    threads: int
    precision: Literal["fp32", "bf16"]
    batch: int
    prompt: int
    new: int


class CodeVersions(TypedDict):
    """Versions of the parts of the code that a time depends on.

    Attributes:
        methods: Of the methods of this package that the method is, or is built on.
        source: Digest of a plugin's source.
        files: Digests of the files that it names.
    """

    backbone: int
    method: int
    engine: int
    model: int
    timing: int
    methods: NotRequired[dict[str, int]]
    source: NotRequired[str]
    files: NotRequired[dict[str, str]]


Versions = TypedDict("Versions", {"adaptive-bench": str, "torch": str, "transformers": str, "python": str})


class CalibratedDial(TypedDict):
    """A dial value found on calibration text.

    Attributes:
        requested, realised: Share of token-branches that was asked for, and that it saves on that text.
        status: Whether the two are near enough.
        worst_site_error: Largest difference of a site from its share; of thresholds, as is the unit that skips.
    """

    dial: float
    requested: float
    realised: float
    status: Literal["ok", "warn", "fail"]
    worst_site_error: NotRequired[float]
    unit: NotRequired[Literal["branch", "layer"]]


class PlainTime(TypedDict):
    """The Hugging Face model as it is; latencies in seconds."""

    prefill_s: Quantiles
    decode_s: Quantiles
    tokens_per_s: float
    peak_memory_bytes: int | None


class TimedShares(TypedDict):
    """Shares saved of the dense model in the timed calls (`saved` of `generate` says which is what)."""

    tokens: float | None
    core: float | None
    net: float | None
    executed: float | None


class SavedTime(TypedDict):
    """Shares of the plain model's time; negative where ours is slower."""

    prefill: float
    decode: float
    total: float


class TimedPoint(TypedDict):
    """A dial value; latencies in seconds, of a batch of prompts and of one more token for each row."""

    requested: float
    dial: float
    saved: TimedShares
    saved_time: SavedTime
    prefill_s: Quantiles
    decode_s: Quantiles
    prefill_speedup: Quantiles
    decode_speedup: Quantiles
    tokens_per_s: float
    peak_memory_bytes: int | None


class TimingRecord(TypedDict):
    """A method at one batch size.

    Attributes:
        schema: Version of the record's form.
        weights: `untrained`, or which checkpoint.
        tokens: What was read.
        memory: What `peak_memory_bytes` means on this device.
    """

    schema: int
    method: str
    model: str
    model_fingerprint: str
    weights: str
    tokens: str
    calibration_tokens: int
    setting: Setting
    savings: list[float]
    rounds: int
    code: CodeVersions
    versions: Versions
    date: str
    calibration: list[CalibratedDial]
    memory: str
    plain: PlainTime
    points: list[TimedPoint]
