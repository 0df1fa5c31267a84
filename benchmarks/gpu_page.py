"""Writes the section of `docs/benchmarks.md` about a GPU, from the record of `make gpu` alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
_NAMES = {"plain": "plain Hugging Face", "dense": "dense", "gateskip_50": "GateSkip, scalar gates, 50 %"}


def section(record: Record) -> str:
    """The section, with the parts that the record holds."""
    peaks = record["peaks"]
    parts = [
        f"""## On a GPU

{record["model"]}, on {record["device"]} (torch {record["torch"]}, transformers {record["transformers"]}, Python
{record["python"]}); `make gpu` took {record["elapsed_s"]:.0f} s. Peaks, measured there: products
{peaks["flops_per_s"] / 1e12:.3g} TFLOP/s, copies {peaks["bytes_per_s"] / 1e9:.3g} GB/s. *Roofline* is the least time in
which these peaks allow what the ledger counts (FLOPs of everything executed; bytes of the weights, in decoding of keys
and values too) over the time taken: 1 means that nothing could be faster without computing less.""",
        _speeds("Prefill", record.get("prefill", []), ("batch", "length")),
        _speeds("Decode", record.get("decode", []), ("batch", "prompt")),
        _static(record),
        _training(record.get("training", [])),
        _conformance(record),
        _missing(record),
    ]
    return "\n\n".join(part for part in parts if part)


def _speeds(title: str, rows: Sequence[Record], at: tuple[str, str]) -> str:
    if not rows:
        return ""
    table = [
        {name: str(row[name]) for name in at}
        | {"variant": _variant(row["variant"]), "ms": f"{1e3 * row['seconds']:.2f}"}
        | {"speed-up": f"{row['speedup']:.2f}" if "speedup" in row else ""}
        | {"net saved": f"{row['net']:.1%}" if "net" in row else ""}
        | {"roofline": f"{row['roofline']:.2f}", "bound by": row["bound"]}
        for row in sorted(rows, key=lambda row: [row[name] for name in at])
    ]
    return f"### {title} on a GPU\n\n{_table(table)}"


def _static(record: Record) -> str:
    ours = {(row["batch"], row["variant"]): row["seconds"] for row in record.get("decode", [])}
    variants = list(dict.fromkeys(variant for _, variant in ours))
    table = [
        {"batch": str(row["batch"]), "ms": f"{1e3 * row['seconds']:.2f}"}
        | {
            _variant(variant): f"{row['seconds'] / ours[row['batch'], variant]:.2f}"
            for variant in variants
            if (row["batch"], variant) in ours
        }
        for row in record.get("static_decode", [])
    ]
    if not table:
        return ""
    compiled = all(row["compiled"] for row in record["static_decode"])
    how = "compiled" if compiled else "not compiled here"
    return f"""### Against a static cache

A step of Hugging Face's `generate` with a static cache ({how}), and its time over that of each variant:

{_table(table)}"""


def _training(rows: Iterable[Record]) -> str:
    table = [
        {"method": row["method"], "tokens": f"{row['batch']} x {row['length']}", "steps": str(row["steps"])}
        | {"ms a step": f"{1e3 * row['step_s']:.1f}", "tokens/s": f"{row['tokens_per_s']:,.0f}"}
        | {"share of peak": f"{row['peak_share']:.1%}", "GiB at most": _gib(row["peak_memory_bytes"])}
        for row in rows
    ]
    return f"### Training steps on a GPU\n\n{_table(table)}" if table else ""


def _conformance(record: Record) -> str:
    rows = record.get("conformance", [])
    if not rows:
        return ""
    bad = [row for row in rows if row["wrong"]]
    families = ", ".join(dict.fromkeys(row["family"] for row in rows))
    worst = max(rows, key=lambda row: row["fp32"]["median"])
    text = (
        f"{len(rows) - len(bad)} of {len(rows)} comparisons with the CPU hold ({families}; fp32 and bf16). In fp32 "
        f"the median difference of a token's logits is at most {worst['fp32']['median']:.1g} ({worst['spec']})."
    )
    if bad:
        wrong = [{"spec": row["spec"], "family": row["family"], "what": "; ".join(row["wrong"])} for row in bad]
        text += f"\n\n{_table(wrong)}"
    if suite := record.get("suite"):
        failing = {one["spec"] for one in suite["failures"]}
        text += (
            f"\n\nThe conformance suite in fp32 on {suite['family']}: {len(suite['specs']) - len(failing)} of "
            f"{len(suite['specs'])} specs pass every check."
        )
        if suite["failures"]:
            text += "\n\n" + _table([{"spec": one["spec"], "check": one["check"]} for one in suite["failures"]])
    return f"### The same as on the CPU\n\n{text}"


def _missing(record: Record) -> str:
    left = [*record["left_out"], *record.get("suite", {}).get("left_out", [])]
    lines = [f"No time was left for: {', '.join(left)}."] if left else []
    lines += [f"Failed: {one['part']} ({one['error']})." for one in record["failed"]]
    return "\n\n".join(lines)


def _variant(key: str) -> str:
    return _NAMES.get(key) or f"{key} % skipped at random"


def _gib(count: int | None) -> str:
    return "" if count is None else f"{count / 2**30:.1f}"


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    """A Markdown table, made without a library, since the machine may have none."""
    heads = list(dict.fromkeys(name for row in rows for name in row))
    lines = [heads, ["---"] * len(heads), *([row.get(head, "") for head in heads] for row in rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
