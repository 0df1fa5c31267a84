import shutil
from contextlib import contextmanager
from typing import Any

import pytest
from small_runs import run_config

from adaptive_bench.leaderboard.entry import sums_of
from adaptive_bench.leaderboard.submission import submit
from adaptive_bench.runs import run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ABOUT = {"authors": ["A. Name"], "licence": "CC-BY-4.0", "paper": "https://example.org/paper"}


@pytest.fixture(scope="session")
def small_run(model_folder, tmp_path_factory):
    """The folder of a finished run of seconds."""
    out = tmp_path_factory.mktemp("run") / "out"
    return run(run_config(model_folder, out, ("dense", "random_skip", "gateskip"), seeds=(1, 2), shuffled=True)).folder


@pytest.fixture(scope="session")
def small_entry(small_run, tmp_path_factory):
    """It as an entry, which no test changes."""
    return submit(small_run, tmp_path_factory.mktemp("entries"), about=ABOUT)


@pytest.fixture
def changed(small_entry, tmp_path):
    """`changed(change, entry)`: a copy of an entry (`small_entry`) to which `change(folder)` was done, with sums as
    whoever did it writes them.
    """

    def make(change, entry=small_entry):
        folder = shutil.copytree(entry, tmp_path / "changed", dirs_exist_ok=True)
        change(folder)
        (folder / "SHA256SUMS").write_text(sums_of(folder))
        return folder

    return make


@pytest.fixture(scope="session")
def make_row():
    def make(**changes):
        row: dict[str, Any] = {
            "method": "gateskip",
            "semantics": "bench",
            "task": "nano_math",
            "metric": "exact_match,strict-match",
            "axis": "net",
            "level": 0.1,
            "score": 0.8984,
            "low": 0.84,
            "high": 0.951,
            "seeds": 3,
            "saved_tokens": 0.15,
            "saved_core": 0.125,
            "saved_net": 0.1,
            "status": "ok",
        }
        return row | changes

    return make


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install '.[browser]'")
    if CHROMIUM is None:
        pytest.skip("needs Chromium (Debian: apt install chromium)")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def watched():
    return _watched


@contextmanager
def _watched(browser):
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
