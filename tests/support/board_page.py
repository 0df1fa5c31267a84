"""Pages in headless Chromium: fixtures, and what tests of several pages share."""

from contextlib import contextmanager
from shutil import which

import pytest

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
