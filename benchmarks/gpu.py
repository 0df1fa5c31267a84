"""Measures a model of Llama-3.2-1B's shape on an NVIDIA GPU, and compares every method there with the CPU: `make gpu`.

It needs the PyTorch and transformers of the machine and nothing else: no installation, no network, no other package. It
ends within its time, and the record names the parts for which no time was left. It writes `benchmarks/gpu.json` after
each part, and from it `docs/benchmarks.md` if `python benchmarks page` can run.

Parts: `conformance` of all methods in fp32 and bf16, `decode` and `prefill` in bf16, `training` steps, `static_decode`
(Hugging Face's compiled decoding), and the conformance `suite` in the remaining time.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import platform
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bare

RECORD = Path(__file__).with_name("gpu.json")
BUDGET_S = 410.0  # out of eight minutes; the rest is for starting and for the part that is running at the end
GRACE_S = 45.0  # that part is cut off after this time
LLAMA_1B = {  # meta-llama/Llama-3.2-1B
    "hidden": 2048,
    "layers": 16,
    "inner": 8192,
    "vocabulary": 128256,
    "heads": 32,
    "kv_heads": 8,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
}
TINY_SHAPE = {"hidden": 64, "layers": 2, "inner": 96, "vocabulary": 128, "heads": 4, "kv_heads": 2}


@dataclass(frozen=True)
class Sizes:
    """Sizes of all parts.

    Attributes:
        shape: Shape of the measured model.
        peak_side, peak_bytes: Side of the matrices and size of the copies that measure the device's peaks.
        prefills: Pairs of batch and length, the most telling first.
        batches: Batch sizes of decoding, the most telling first.
        prompt, steps: Tokens of the prompt and steps of decoding.
        training: Batch and length of a training step.
        training_steps: Number of training steps of GateSkip and of the dense model.
        specs: Methods that are compared with the CPU on each family and checked by the suite; empty means all.
        families: Families of backbones.
    """

    shape: dict[str, Any]
    peak_side: int
    peak_bytes: int
    prefills: tuple[tuple[int, int], ...]
    batches: tuple[int, ...]
    prompt: int
    steps: int
    training: tuple[int, int]
    training_steps: tuple[int, int]
    specs: tuple[str, ...]
    families: tuple[str, ...]


FULL = Sizes(
    shape=LLAMA_1B,
    peak_side=8192,
    peak_bytes=2**32,
    prefills=((8, 512), (8, 2048), (1, 512), (32, 512), (1, 8192), (1, 2048), (32, 2048), (8, 8192), (32, 8192)),
    batches=(32, 1, 8, 128),
    prompt=512,
    steps=48,
    training=(2, 4096),
    training_steps=(50, 20),
    specs=(),
    families=("llama", "qwen3", "gemma2"),
)
TINY = Sizes(
    shape=TINY_SHAPE,
    peak_side=64,
    peak_bytes=2**16,
    prefills=((2, 16),),
    batches=(1, 2),
    prompt=8,
    steps=4,
    training=(2, 16),
    training_steps=(2, 1),
    specs=("dense", "gateskip"),
    families=("llama", "qwen3"),
)


class CutOffError(Exception):
    """The time for all parts is over."""


class Session:
    """The record, its file, and the remaining time.

    A part that is running when the time is over may take `GRACE_S` more, and is then cut off.

    Args:
        about: The first entries of the record.
        file: The record is written here after each part; `None` writes nothing.
        budget_s: Seconds for all parts.
    """

    def __init__(self, about: dict[str, Any], file: Path | None, budget_s: float) -> None:
        self.record: dict[str, Any] = about | {"left_out": [], "failed": []}
        self.file = file
        self.start_s = time.monotonic()
        self.end_s = self.start_s + budget_s

    @contextmanager
    def part(self, name: str, least_s: float = 0.0) -> Iterator[bool]:
        """Yields whether there is time for a part; an error in it goes into the record, and other parts still run.

        Args:
            name: Name of the part.
            least_s: The least number of seconds that the part takes.
        """
        has_time = time.monotonic() + least_s <= self.end_s
        if not has_time:
            self.record["left_out"].append(name)
        start_s = time.monotonic()
        signal.signal(signal.SIGALRM, _cut_off)
        signal.setitimer(signal.ITIMER_REAL, self.end_s + GRACE_S - start_s if has_time else 0)
        try:
            yield has_time
        except Exception as error:  # noqa: BLE001 - such a machine is rarely at hand: other parts still run
            first = str(error).strip().partition("\n")[0]
            self.record["failed"].append({"part": name, "error": f"{type(error).__name__}: {first[:300]}"})
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if has_time:
            print(f"== {name}: {time.monotonic() - start_s:.0f} s", flush=True)
        _free()
        self.save()

    def add(self, key: str, rows: list[dict[str, Any]]) -> None:
        """Add rows of a part to the record."""
        self.record.setdefault(key, []).extend(rows)

    def save(self) -> None:
        """Write the record as it is."""
        self.record["elapsed_s"] = time.monotonic() - self.start_s
        if self.file is not None:
            from adaptive_bench.store import atomic

            atomic.write_json(self.file, self.record)


def _cut_off(*_: object) -> None:
    raise CutOffError("no time was left for the rest of it")


def measure(session: Session, sizes: Sizes, device: Any) -> None:
    """Run all parts and add their results to the session's record."""
    import gpu_conformance
    import gpu_speed
    import gpu_training
    import torch
    from measure import llama
    from roofline import measure_peaks

    peaks = measure_peaks(device, torch.bfloat16, sizes.peak_side, sizes.peak_bytes)
    session.record["peaks"] = peaks.to_json()
    specs = sizes.specs or _all_specs()
    first, *others = sizes.families
    with session.part(f"conformance on {first}"):
        _compare(session, specs, first, device)
    plain = llama(**sizes.shape, device=device, dtype=torch.bfloat16)
    driven = gpu_speed.variants(plain, 2 * sizes.prompt)
    for batch in sizes.batches:
        with session.part(f"decode at batch {batch}", least_s=15) as has_time:
            if has_time:
                session.add("decode", gpu_speed.decode(plain, driven, batch, sizes.prompt, sizes.steps, peaks))
    for batch, length in sizes.prefills:
        with session.part(f"prefill of {batch} x {length}", least_s=5 + 1e-4 * batch * length) as has_time:
            if has_time:
                session.add("prefill", gpu_speed.prefill(plain, driven, batch, length, peaks))
    for spec, steps in zip(("gateskip", "dense"), sizes.training_steps, strict=True):
        with session.part(f"training of {spec}", least_s=30) as has_time:
            if has_time:
                trained = gpu_training.train(spec, sizes.shape, device, *sizes.training, steps, peaks)
                session.add("training", [trained])
    for batch in sizes.batches:  # late, since compiling takes longest and is most likely to fail
        with session.part(f"compiled decode at batch {batch}", least_s=60) as has_time:
            if has_time:
                session.add("static_decode", [gpu_speed.static_decode(plain, batch, sizes.prompt, sizes.steps)])
        torch._dynamo.reset()  # frees the memory that compiled graphs hold
    for family in others:
        with session.part(f"conformance on {family}", least_s=30) as has_time:
            if has_time:
                _compare(session, specs, family, device)
    with session.part("suite", least_s=10) as has_time:
        if has_time:
            session.record["suite"] = gpu_conformance.check_suite(specs, first, device, session.end_s - 10)


def _compare(session: Session, specs: Sequence[str], family: str, device: Any) -> None:
    import gpu_conformance

    for spec in specs:
        if time.monotonic() > session.end_s:
            session.record["left_out"].append(f"{spec} on {family}")
            continue
        with _kept_apart(session, f"{spec} on {family}"):
            session.add("conformance", [gpu_conformance.compare(spec, family, device)])


@contextmanager
def _kept_apart(session: Session, name: str) -> Iterator[None]:
    try:
        yield
    except CutOffError:
        raise
    except Exception as error:  # noqa: BLE001 - a method's error is a result about that method
        session.record["failed"].append({"part": name, "error": f"{type(error).__name__}: {str(error)[:300]}"})


def _all_specs() -> tuple[str, ...]:
    """Every method in both semantics."""
    from adaptive_bench import registry
    from adaptive_bench.spec import SEMANTICS, MethodSpec

    return tuple(str(MethodSpec(name, (), one)) for name in registry.names("methods") for one in SEMANTICS)


def _free() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def about(device: Any) -> dict[str, Any]:
    """Device and versions for the record."""
    import torch
    import transformers

    from adaptive_bench.hardware import describe_device

    found = {"device": describe_device(device), "python": platform.python_version()}
    found |= {"torch": torch.__version__, "transformers": transformers.__version__}
    if device.type == "cuda":
        found["memory_bytes"] = torch.cuda.get_device_properties(device).total_memory
    return found


def wrong(record: dict[str, Any]) -> list[str]:
    """The failures that a record holds, one line each."""
    lines = [f"{one['part']} failed: {one['error']}" for one in record["failed"]]
    for row in record.get("conformance", []):
        lines += [f"{row['spec']} on {row['family']}, {text}" for text in row["wrong"]]
    suite = record.get("suite", {"failures": []})
    return lines + [f"{one['spec']} fails {one['check']}: {one['message']}" for one in suite["failures"]]


def main() -> None:
    """Measure, print the section of the page, and write record and page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="tiny shapes on the CPU: a trial; writes --out alone")
    parser.add_argument("--out", type=Path, help="file of the record instead of benchmarks/gpu.json")
    parser.add_argument("--seconds", type=float, default=BUDGET_S, help="time for all parts together")
    given = parser.parse_args()
    for line in bare.prepare():
        print(line, flush=True)
    import gpu_page
    import torch

    if not given.tiny and not torch.cuda.is_available():
        sys.exit("make gpu measures on an NVIDIA GPU, but PyTorch finds none here. Try it out on the CPU with --tiny.")
    torch.set_num_threads(1)  # the CPU computes only tiny models, which more threads would slow down
    device = torch.device("cpu" if given.tiny else "cuda")
    session = Session(about(device), given.out or (None if given.tiny else RECORD), given.seconds)
    session.record["model"] = "tiny" if given.tiny else "Llama-3.2-1B's shape, random weights, bf16"
    measure(session, TINY if given.tiny else FULL, device)
    session.save()
    print(gpu_page.section(session.record))
    if session.file == RECORD and importlib.util.find_spec("tabulate") is not None:
        import page

        page.write()
    if lines := wrong(session.record):
        sys.exit("\n".join(["Not as it should be:", *lines]))


if __name__ == "__main__":
    main()
