"""Pages in headless Chromium: fixtures, and what tests of several pages share."""

import json
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import pytest

from adaptive_bench.leaderboard.site import build
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.store.records import DialEvaluationRecord
from adaptive_bench.store.results import write_run

CHROMIUM = which("chromium") or which("chromium-browser") or which("google-chrome")


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install '.[browser]'")
    if CHROMIUM is None:
        pytest.skip("needs Chromium (Debian: apt install chromium)")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A board of four methods on two tasks, with a record that has samples, and of two on another model."""
    root = tmp_path_factory.mktemp("board")
    run = root / "runs" / "0123456789abcdef"
    sweep = root / "records" / "aaaaaaaaaaaaaaaa" / "eval" / "nano_math-1"
    run.mkdir(parents=True)
    sweep.mkdir(parents=True)
    rows = []
    for axis in ("net", "tokens", "claimed"):
        for task, metric in (("nano_math", "exact_match,strict-match"), ("text", "bits_per_byte,none")):
            for place, method in enumerate(("dense", "random_skip", "gateskip", "mod")):
                for level in (0.0, 0.15, 0.25):
                    score = None if method == "dense" and level else 0.9 - level * (4 - place) * (axis == "net") / 2
                    about = {"method": method, "task": task, "metric": metric, "axis": axis, "level": level}
                    about |= {"score": score, "status": "ok" if score is not None else "outside", "seeds": 2}
                    about |= {"low": score and score - 0.05, "high": score and score + 0.05}
                    rows.append(about | {"beyond_target": level == 0.25, "saved_net": level})
    other = {"task": "story", "metric": "acc,none", "axis": "net", "model": "other", "seeds": 1, "status": "ok"}
    for method, level, score in (("dense", 0.0, 0.8), ("calm", 0.0, 0.7), ("calm", 0.15, 0.0), ("free", 0.15, 0.004)):
        rows.append(other | {"method": method, "level": level, "score": score, "low": 0.0, "high": score})
    (run / "table.json").write_text(json.dumps(rows))
    (run / "config.yaml").write_text("methods: [dense, gateskip]\n")
    record = DialEvaluationRecord(sweep)
    record.write("config", {"task": "nano_math", "method": "gateskip"})
    saved = {"tokens": 0.1, "core": 0.1, "net": 0.1}
    point = Evaluation("nano_math", 0.1, {"acc,none": 1.0}, 1, saved, {}, 1.0, 1, 1, 1, 0, 0)
    sample = Sample(0, "56", "<img src=x onerror=document.title='acted'> 56", {}, {}, 1.0)
    record.add_point(0.1, point, [sample], wall_s=1.0)
    metric, sweeps = "exact_match,strict-match", []
    for place, method in enumerate(("random_skip", "gateskip", "mod"), 1):
        for seed in (1, 2):
            right = {0.0: 180, 0.25: 80 + 25 * place}  # of 200: the scores of the rows
            points = [
                {"saved": {"net": saved}, "times": {}, "scores": {metric: "1" * count + "0" * (200 - count)}}
                for saved, count in right.items()
            ]
            about = {"method": method, "semantics": "bench", "task": "nano_math", "seed": seed, "target": None}
            about |= {"documents": list(range(200)), "documents_sha256": None, "points": points}
            sweeps.append(about)
    (run / "answers.json").write_text(json.dumps({"schema": 1, "sweeps": sweeps}))
    facts = {"gateskip": {"causality": "C0", "kv_policy": "recompute"}, "mod": {"causality": "C2"}}
    (run / "methods.json").write_text(json.dumps({"schema": 1, "methods": facts}))
    write_run(run, {"records": ["aaaaaaaaaaaaaaaa"], "failures": ["mod: out of <b>memory</b>"]})
    build([run / "table.json"], root / "site")
    return root / "site" / "index.html"


@pytest.fixture
def opened(browser, site):
    """Open the page; afterwards nothing was asked of a network and no script failed."""
    with watched(browser) as open_file:

        def open_page(fragment="", width=1280, scheme="light"):
            page = open_file(site, "file:", fragment, width, scheme)
            page.wait_for_selector("html[data-ready]")
            return page

        yield open_page


@contextmanager
def watched(browser):
    """Open files in pages; afterwards nothing but addresses that begin so was asked for, and no script failed."""
    pages, wrong = [], []

    def open_file(path, asked, fragment, width, scheme):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("request", lambda request: request.url.startswith(asked) or wrong.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda line: line.type in ("error", "warning") and wrong.append(line.text))
        page.goto(f"{path.as_uri()}{fragment}")
        pages.append(page)
        return page

    yield open_file
    for page in pages:
        page.close()
    assert wrong == []


def board_of(rows, browser, folder, fragment=""):
    """The page of a board that has these rows."""
    (folder / "table.json").write_text(json.dumps(rows))
    write_run(folder, {})
    build([folder / "table.json"], folder / "site")
    page = browser.new_page()
    page.goto((folder / "site" / "index.html").as_uri() + fragment)
    page.wait_for_selector("html[data-ready]")
    return page


def wait(page, condition):
    """Until a condition holds. Asked from here: the page's policy forbids what `wait_for_function` evaluates in it."""
    for _ in range(500):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never came to be: {condition}")
