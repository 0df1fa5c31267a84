"""The board and the pages of methods in Chromium: nothing is cut off, nothing runs, and what is folded opens."""

import json

import pytest
from swept_board import board_with, right

from adaptive_bench.leaderboard.page import build
from adaptive_bench.store.keys import TABLES
from adaptive_bench.store.runs import write_run

pytestmark = pytest.mark.browser
LONG = "a_method_of_a_name_that_leaves_no_room[with=many,long=parameters,of=all_kinds,and=more]"


@pytest.fixture(scope="module")
def site(tmp_path_factory, request):
    root = tmp_path_factory.mktemp("board")
    scores = {"dense": right(1), "base": right(0), "static_depth": right(0.6), "mod": right(0.8), LONG: right(0.5)}
    scores |= {f"calm[threshold={place}]": right(0.3 + place / 100) for place in range(14)}
    make_row = request.getfixturevalue("make_row")
    rows = []
    for level in (0.05, 0.15, 0.25):
        board = board_with(make_row, dict.fromkeys(("nano_math", "nano_qa", "nano_text"), scores), level)
        rows += [{key: value for key, value in row.plain().items() if value is not None} for row in board.rows]
    run = root / "run"
    run.mkdir()
    (run / "table.json").write_text(json.dumps(rows))
    write_run(run, {"tables": TABLES, "warnings": ["a warning " + "without_any_place_to_break" * 20]})
    build([run / "table.json"], root / "site")
    return root / "site"


@pytest.fixture
def opened(browser, watched):
    with watched(browser) as open_file:
        yield lambda path, width, scheme="light": open_file(path, "file:", "", width, scheme)


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("name", ["index.html", "methods/mod.html"])
def test_the_page_is_no_wider_than_its_window_even_with_everything_unfolded(opened, site, name, width):
    page = opened(site / name, width)
    for _ in range(2):
        widest = page.evaluate("document.documentElement.scrollWidth")
        assert widest <= width, f"{widest} px"
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


def test_the_list_is_short_and_leads_to_the_pages_of_methods_and_to_everything(opened, site):
    page = opened(site / "index.html", 1300)
    assert page.locator("table.ranked").first.locator("tbody tr").count() == 12
    assert page.locator(".answer").first.inner_text().startswith("At 15 %, mod keeps most (80 of 100)")
    page.locator("summary", has_text="Everything measured at this level").first.click()
    assert page.get_by_text("calm[threshold=0]").first.is_visible()
    page.get_by_role("link", name="mod", exact=True).first.click()
    assert page.url.endswith("/methods/mod.html") and page.locator("h1").inner_text() == "mod"


def test_no_name_of_the_chart_is_cut_off(opened, site):
    page = opened(site / "index.html", 1300)
    inside = "(one) => { const box = one.getBBox(), all = one.closest('svg').viewBox.baseVal;"
    inside += " return box.x >= 0 && box.x + box.width <= all.width && box.y + box.height <= all.height; }"
    texts = page.locator("figure svg text")
    assert texts.count() > 20 and all(one.evaluate(inside) for one in texts.all())


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index.html", "methods/mod.html"])
def test_texts_have_enough_contrast(opened, site, name, scheme):
    """At least 4.5 to 1 (WCAG 2.2, AA), of every text that stands there by itself."""
    page = opened(site / name, 1300, scheme)
    ratios = page.evaluate(
        """() => {
          const parts = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number).map((one) => one / 255)
            .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
          const light = (text) => parts(text).reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
          const page = light(getComputedStyle(document.body).backgroundColor);
          const texts = [...document.querySelectorAll("h1, h2, h3, p, td, th, a, summary, dt")];
          return texts.map((one) => light(getComputedStyle(one).color))
            .map((one) => (Math.max(one, page) + 0.05) / (Math.min(one, page) + 0.05));
        }"""
    )
    assert ratios and min(ratios) >= 4.5
