"""Writes `docs/benchmarks.md` and its pictures from `results.json` and, if it exists, `gpu.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gpu_page
import plot
from measure import RESULTS
from tabulate import tabulate

from adaptive_bench.store import atomic

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
GPU = Path(__file__).with_name("gpu.json")
REFERENCE = Path(__file__).parent / "reference" / "authors_compaction.json"
PICTURES = "benchmarks"  # folder beside the page
_HEAD = "<!-- Written by `make bench` from benchmarks/results.json; change benchmarks/page.py instead. -->"
_PHASES = ("prefill", "decode")
_BATCHES = (1, 8, 32)
_VARIANTS = {
    "dense": "dense",
    "25": "25 % skipped at random",
    "50": "50 % skipped at random",
    "gateskip_scalar_50": "GateSkip, scalar gates, 50 %",
}
_AXES = {
    "layers": "layers",
    "width": "hidden size",
    "length": "tokens of the prompt",
    "batch": "batch",
}

Results = Mapping[str, Any]


def render(results: Results) -> dict[str, str]:
    """The page and its pictures, by path relative to the page's folder."""
    sections = [
        _intro(),
        _smollm2(results),
        _prefill(results),
        _decode(results),
        _training(results),
        _evaluation(results),
    ]
    sections += [
        _growth(results),
        gpu_page.section(results["gpu"]) if "gpu" in results else "",
        _setups(results),
    ]
    texts = {PAGE.name: "\n\n".join(section for section in sections if section) + "\n"}
    if "growth" in results:
        texts[f"{PICTURES}/growth_speedup.svg"] = plot.grid(_plots(results["growth"], "speedup"))
        texts[f"{PICTURES}/growth_felt.svg"] = plot.grid(_plots(results["growth"], "felt"))
    if "packed_50_speedup" in results:
        texts[f"{PICTURES}/prefill.svg"] = plot.grid([_prefill_plot(results)], columns=1)
    return texts


def load() -> Results:
    """The results; the key `gpu` has the record of `make gpu`, if there is one."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found | ({"gpu": json.loads(GPU.read_text(encoding="utf-8"))} if GPU.is_file() else {})


def write() -> None:
    """Write page and pictures."""
    for file, text in render(load()).items():
        atomic.write_text(PAGE.parent / file, text)
    print(f"Written: {PAGE}")


def _intro() -> str:
    return f"""{_HEAD}

# Benchmarks

How fast the engine is beside plain Hugging Face with the same weights.

*Speed-up* is plain time over ours: above 1 we are faster. *Net* is the share of FLOPs saved after the method's own
costs. *Felt share* is saved time over net FLOPs saved. Variants take turns in one process; each round gives a ratio,
and their median is shown.

`make bench` measures everything again and writes this page; `make gpu` adds an NVIDIA GPU, with the PyTorch and
transformers that are there. `adaptive-bench time` measures methods on your model and device in the same way. Weights
are random here and methods untrained, as time depends only on which tokens are kept. Real patterns are less even
than random."""


def _smollm2(results: Results) -> str:
    """The results at a real model's shape; later sections are about smaller models."""
    if "smollm2" not in results:
        return ""
    found = results["smollm2"]
    names = _VARIANTS | {"15": "15 % skipped at random", "layers": "8 of 30 layers left out", "gateskip": "GateSkip"}
    prefill = [
        {"prefill": names[row["variant"]], "speed-up": _number(row["speedup"])}
        | {"net saved": _share(row["net"]), "felt share": _felt(row["speedup"], row["net"])}
        for row in found["prefill"]
    ]
    decode = [
        {"decode": names[key]}
        | {f"batch {row['batch']}": _number(row["speedup"]) for row in found["decode"] if row["variant"] == key}
        for key in dict.fromkeys(row["variant"] for row in found["decode"])
    ]
    training = [
        {"training": names.get(row["variant"], "plain Hugging Face"), "speed-up": _number(row["speedup"])}
        | {"tokens/s": _number(row["tokens_per_s"], 0)}
        for row in found["training"]
    ]
    evaluation = [{"evaluation": row["case"], "speed-up": _number(row["speedup"])} for row in found["evaluation"]]
    return f"""## SmolLM2-135M's shape

Llama of 30 layers, hidden size 576, MLP 1536, 9 heads with 3 key/value heads, tied vocabulary of 49,152; 4 x 256 tokens
in prefill and training, one more token per row behind 128 in decode. Evaluation is beside lm-eval's own adapter:
log-likelihoods of PIQA at 0 and 5 shots, and generation.

{_table(prefill)}

{_table(decode)}

{_table(training)}

{_table(evaluation)}"""


def _prefill(results: Results) -> str:
    if "packed_50_speedup" not in results:
        return ""
    authors = json.loads(REFERENCE.read_text(encoding="utf-8"))
    ours = _prefill_points(results)
    theirs = {float(share): speedup for share, speedup in authors["speedup_by_tokens_skipped"].items()}
    rows = [
        {
            "tokens skipped": f"{share:.0%}",
            "speed-up": _number(ours.get(share)),
            "net saved": _share(results.get(f"packed_{share:.0%}_net".replace("%", ""))),
            "felt share": _felt(ours.get(share), results.get(f"packed_{share:.0%}_net".replace("%", ""))),
            "GateSkip's authors": _number(theirs.get(share)),
        }
        for share in sorted({*ours, *theirs})
    ]
    half, net = results["packed_50_speedup"], results.get("packed_50_net")
    return f"""## Prefill

Where half of the tokens skip each branch, {_share(net)} of the net FLOPs are saved and a prompt is read
{half:.2f} times as fast.

{_table(rows)}

The dense wrapper takes {results["dense_over_plain"]:.2f} times as long as the plain model. The authors' figures:
{authors["what"][0].lower()}{authors["what"][1:]} ({authors["setting"]}; {authors["source"]}). {authors["remark"]}

![Speed-up of prefill over tokens skipped]({PICTURES}/prefill.svg)"""


def _decode(results: Results) -> str:
    rows = [
        {"variant": name}
        | {f"batch {batch}": _number(results.get(f"decode_b{batch}_{key}")) for batch in _BATCHES}
        | {f"net {batch}": _share(results.get(f"decode_b{batch}_{key}_net")) for batch in _BATCHES}
        for key, name in _VARIANTS.items()
        if any(f"decode_b{batch}_{key}" in results for batch in _BATCHES)
    ]
    if not rows:
        return ""
    plain = ", ".join(
        f"{results[f'decode_b{batch}_plain_ms']:.1f} ms at batch {batch}"
        for batch in _BATCHES
        if f"decode_b{batch}_plain_ms" in results
    )
    return f"""## Decode

Speed-up of one more token per row, and net FLOPs saved over prompt and new tokens.

{_table(rows)}

A step of the plain model takes {plain}. The share of weight products in a step
is under `decode_parts` in `benchmarks/results.json`."""


def _training(results: Results) -> str:
    if "train_gateskip_over_dense" not in results:
        return ""
    return f"""## Training step

A step of GateSkip with vector gates takes {results["train_gateskip_over_dense"]:.3f} times as long as a dense one (with
scalar gates {results["train_gateskip_scalar_over_dense"]:.3f} times). The vector gates' multiply-accumulates are
{results["train_gateskip_share"]:.1%} of the dense forward pass; with a 5 % margin, this
explains up to {results["train_gateskip_allowed"]:.3f}. In training all methods run every
branch, so nothing is saved there."""


def _evaluation(results: Results) -> str:
    rows = [
        {"key": f"`{key}`", "value": _number(value, 3)} for key, value in results.items() if key.startswith("eval_")
    ]
    return f"## Evaluation\n\n{_table(rows)}" if rows else ""


def _growth(results: Results) -> str:
    if "growth" not in results:
        return ""
    middle = ", ".join(f"{_AXES[axis]} {value}" for axis, value in results["setups"]["growth"]["middle"].items())
    return f"""## How it grows

Half of the token-branches skipped at random; one size changes at a time, the others stay at: {middle}.

![Speed-up at 50 % skipped]({PICTURES}/growth_speedup.svg)

![Felt share at 50 % skipped]({PICTURES}/growth_felt.svg)

The numbers are under `growth` in `benchmarks/results.json`."""


def _setups(results: Results) -> str:
    hidden = ("decode_parts", "host_reads")  # benchmarks that the page does not show
    setups = {name: setup for name, setup in results.get("setups", {}).items() if name not in hidden}
    shown = {name: {key: _flat(value) for key, value in setup.items()} for name, setup in setups.items()}
    alike = dict.fromkeys(item for item in next(iter(shown.values()), {}).items())
    alike = {key: value for key, value in alike if all(setup.get(key) == value for setup in shown.values())}
    rows = [
        {"benchmark": name, "setup": ", ".join(f"{key} {text}" for key, text in setup.items() if key not in alike)}
        for name, setup in shown.items()
    ]
    everywhere = ", ".join(f"{key} {text}" for key, text in alike.items())
    return (
        f"## Where it was measured\n\nAll of them: {everywhere or 'nothing alike'}.\n\n{_table(rows)}" if rows else ""
    )


def _flat(value: Any) -> str:
    return " ".join(f"{key}={part}" for key, part in value.items()) if isinstance(value, Mapping) else str(value)


def _prefill_points(results: Results) -> dict[float, float]:
    """Speed-up by share of tokens skipped."""
    names = [key for key in results if key.startswith("packed_") and key.endswith("_speedup")]
    points = {int(name.split("_")[1]) / 100: float(results[name]) for name in names}
    return {0.0: 1 / results["dense_over_plain"], **points}


def _prefill_plot(results: Results) -> str:
    authors = json.loads(REFERENCE.read_text(encoding="utf-8"))["speedup_by_tokens_skipped"]
    lines = {
        "ours, over plain": [(100 * share, speedup) for share, speedup in _prefill_points(results).items()],
        "authors (A40)": [(100 * float(share), speedup) for share, speedup in authors.items()],
    }
    return plot.plot("Prefill", "tokens skipped (%)", "speed-up", lines, base=1.0)


def _plots(rows: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """One plot for each size."""
    name, base = ("speed-up", 1.0) if key == "speedup" else ("felt share", 0.0)
    return [
        plot.plot(
            f"{name} by {text}",
            text,
            name,
            {
                phase: [(row["value"], row[key]) for row in rows if row["axis"] == axis and row["phase"] == phase]
                for phase in _PHASES
            },
            base=base,
        )
        for axis, text in _AXES.items()
    ]


def _felt(speedup: float | None, net: float | None) -> str:
    return "" if speedup is None or not net else _number((1 - 1 / speedup) / net)


def _number(value: float | None, places: int = 2) -> str:
    return "" if value is None else f"{value:.{places}f}" if isinstance(value, float | int) else str(value)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    return tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True)
