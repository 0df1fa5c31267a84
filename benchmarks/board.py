"""Measures a board of many entries: the time to build it, to show it from disk and to filter it (in headless Chromium),
and the size of its files. With `wide` it has 50 entries of four methods each on three tasks and four axes, and
controls; otherwise 2,000 entries of one method each on one task.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path
from shutil import which
from statistics import median

from adaptive_bench.leaderboard.page import build
from adaptive_bench.store.runs import write_run

ENTRIES = 2000
LEVELS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)
REPEATS = 5


def write_entries(folder: Path, count: int = ENTRIES) -> list[Path]:
    """Write folders of runs that have only tables: one method each on one task, the first two being the controls."""
    generator = random.Random(0)
    tables = []
    for number in range(count):
        method = ("dense", "random_skip")[number] if number < 2 else f"method_{number:04d}"
        start = generator.uniform(0.5, 0.9)
        rows = []
        for level in LEVELS:
            score = None if method == "dense" and level else max(0.0, start - level * generator.uniform(0.5, 3))
            row = {"method": method, "semantics": "bench", "task": "nano_math", "metric": "exact_match,strict-match"}
            row |= {"axis": "net", "phase": "all", "level": level, "score": score, "seeds": 3, "saved_net": level}
            row |= {"low": None, "high": None, "status": "outside"} if score is None else {
                "low": max(0.0, score - 0.05), "high": min(1.0, score + 0.05), "status": "ok"}  # fmt: skip
            rows.append(row)
        path = folder / f"{number:016x}" / "table.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(rows))
        tables.append(path)
    return tables


def write_wide_entries(folder: Path, count: int = 50, methods: int = 4) -> list[Path]:
    """Write folders of runs that have only tables: several methods each on three tasks and four axes, and controls."""
    generator = random.Random(0)
    named = [[f"method_{number:03d}" for number in range(start, start + methods)]
             for start in range(0, count * methods, methods)]  # fmt: skip
    tables = []
    for number, names in enumerate([["dense", "random_skip", "static_depth[trained=true]"], *named]):
        rows = []
        for method in names:
            for task, metric in (
                ("math", "exact_match,strict-match"),
                ("qa", "acc,none"),
                ("text", "bits_per_byte,none"),
            ):
                start, slope = generator.uniform(0.5, 0.9), generator.uniform(0.5, 3)
                for axis in ("net", "tokens", "core", "claimed"):
                    for level in LEVELS:
                        none = method == "dense" and level
                        score = (
                            None if none else max(0.0, start - level * slope) if task != "text" else 1.2 + level * slope
                        )
                        row = {"method": method, "semantics": "bench", "task": task, "metric": metric, "axis": axis}
                        row |= {"phase": "all", "level": level, "score": score, "seeds": 3, "model": "synthetic"}
                        row |= {"documents": 128, "status": "outside", "saved_net": level, "saved_tokens": level}
                        if score is not None:
                            high = score + 0.05 if task == "text" else min(1.0, score + 0.05)
                            row |= {"low": max(0.0, score - 0.05), "high": high, "status": "ok"}
                        rows.append(row)
        path = folder / f"{number:016x}" / "table.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(rows))
        write_run(path.parent, {})
        tables.append(path)
    return tables


def page_times(page: Path) -> dict[str, float]:
    """Median seconds to the first paint from disk, and from a key press in the filter to the next frame.

    Both are also given as processor time of the page's main thread, which does not grow on a busy machine.
    """
    from playwright.sync_api import sync_playwright

    chromium = which("chromium") or which("chromium-browser") or which("google-chrome")
    if chromium is None:
        raise SystemExit("The page is shown in Chromium, which is not installed (Debian: apt install chromium).")
    paints, filters, broad, work = [], [], [], {"load_cpu_s": [], "filter_cpu_s": [], "broad_filter_cpu_s": []}
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(REPEATS):
            shown = browser.new_page(viewport={"width": 1280, "height": 900})
            meter = shown.context.new_cdp_session(shown)
            meter.send("Performance.enable", {"timeDomain": "threadTicks"})
            shown.goto(page.as_uri())
            paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
            while (painted_ms := shown.evaluate(paint)) is None:  # the page's policy forbids a script that waits
                shown.wait_for_timeout(5)
            paints.append(painted_ms / 1000)
            shown.wait_for_selector("html[data-ready]")  # the controls appear after the paint
            work["load_cpu_s"].append(_busy(meter))
            for text in ("method_01", "17"):
                before = _busy(meter)
                filters.append(_filter(shown, text))
                work["filter_cpu_s"].append(_busy(meter) - before)
            before = _busy(meter)
            broad.append(_filter(shown, "m"))
            work["broad_filter_cpu_s"].append(_busy(meter) - before)
            shown.close()
        browser.close()
    found = {"first_paint_s": paints, "filter_s": filters, "broad_filter_s": broad, **work}
    return {name: median(seconds) for name, seconds in found.items()}


def _busy(meter: object) -> float:
    """Processor seconds that the page's main thread has worked."""
    found = meter.send("Performance.getMetrics")["metrics"]  # type: ignore[attr-defined]
    return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))


def _filter(page: object, text: str) -> float:
    script = """(text) => new Promise((done) => {
      const box = document.getElementById("choose-filter"), start = performance.now();
      box.value = text;
      box.dispatchEvent(new Event("input"));
      requestAnimationFrame(() => setTimeout(() => done((performance.now() - start) / 1000)));
    })"""
    return float(page.evaluate(script, text))  # type: ignore[attr-defined]


def _largest(site: Path) -> list[tuple[str, float]]:
    sizes = sorted(((file.stat().st_size, file) for file in site.rglob("*") if file.is_file()), reverse=True)
    return [(str(file.relative_to(site)), round(size / 1e6, 2)) for size, file in sizes[:6]]


def main() -> None:
    """Measure and print. The results say nothing of the engine's speed, so they are not on its page."""
    with tempfile.TemporaryDirectory() as name:
        wide = "wide" in sys.argv[1:]
        tables = (write_wide_entries if wide else write_entries)(Path(name) / "entries")
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        build(tables, Path(name) / "site")
        build_s, build_cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
        page = Path(name) / "site" / "index.html"
        found = {
            "entries": len(tables),
            "build_s": build_s,
            "build_cpu_s": build_cpu_s,
            "page_mib": page.stat().st_size / 2**20,
            "largest_files_mb": dict(_largest(page.parent)),
            **page_times(page),
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
