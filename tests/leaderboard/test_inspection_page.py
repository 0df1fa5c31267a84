"""The page of `inspect` in headless Chromium: text, dial, keyboard, names for readers, themes, a phone's width."""

import json
from time import perf_counter

import numpy as np
import pytest

from adaptive_bench.inspection.readings import Inspection, Point, Reading, record_of
from adaptive_bench.leaderboard.inspection import render
from adaptive_bench.model.text_decisions import TextDecisions

EVIL = " <img src=x onerror=document.title='acted'></script><script>document.title='acted'</script>"
METHODS = ("gateskip", "mod", "calm")


def inspected(tokens=24, layers=4, savings=(0.0, 0.2, 0.4)):
    """Three methods, the last without scores and without the last saving, on a text with markup in it."""
    draw = np.random.default_rng(0)
    pieces = ["<s>", *([" Tom", " has", " 12", " +", EVIL, ".\n"] * tokens)][:tokens]
    readings = []
    for number, spec in enumerate(METHODS):
        scores = None if spec == "calm" else draw.random((tokens, layers, 2), dtype=np.float32)
        points = []
        for saving in savings[: len(savings) - (spec == "calm")]:
            keep = draw.random((tokens, layers, 2)) >= saving
            one = TextDecisions(
                spec, 1 - saving, tuple(range(10, 10 + tokens)), tuple(pieces), tokens // 2, keep, scores
            )
            points.append(Point(saving, [one]))
        readings.append(Reading(spec, "budget", "branch" if number == 0 else "layer", "bench", points))
    return Inspection("a run <b>", "text.txt", readings, ["calm has no dial value for 40 %: <i>."], frozenset({2}))


def test_a_long_text_stays_a_light_page():
    """500 tokens, 16 layers, three methods, six dial values."""
    begun = perf_counter()
    page = render(record_of(inspected(500, 16, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5))))
    assert len(page.encode()) < 1_500_000 and perf_counter() - begun < 20


def test_no_text_becomes_markup():
    page = render(record_of(inspected()))
    assert "<img src=x" not in page and page.count("</script>") == 2 and "a run &lt;b&gt;" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("inspection") / "page.html"
    path.write_text(render(record_of(inspected())), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, watched, file):
    """Open the page; afterwards nothing was asked of a network and no script failed."""
    with watched(browser) as open_file:
        yield lambda fragment="", width=1300, scheme="light", path=file: open_file(
            path, path.as_uri(), fragment, width, scheme
        )


@pytest.mark.browser
def test_a_tower_shows_what_its_token_executes(opened):
    found = inspected()
    keep = found.readings[0].points[1].texts[0].keep
    page = opened("#saving=0.2")
    cells = (
        "(one) => [...one.querySelectorAll('path:not(.whole)')]"
        ".map((path) => (path.getAttribute('d').match(/M/g) || []).length)"
    )
    for token in (0, 5, 23):
        assert page.locator(f"#token-{token}").evaluate(cells) == keep[token].sum(axis=0).tolist()
    label = page.locator("#token-3").get_attribute("aria-label")
    assert label.startswith("“12” (digits): ") and label.endswith(f"{keep[3].sum()} of 8 branches")


@pytest.mark.browser
def test_the_dial_changes_the_text_the_tables_and_the_link(opened):
    page = opened()
    before = page.locator("#tables").inner_text(), page.locator("#answer").inner_text()
    page.focus("#choose-saving")
    page.keyboard.press("Home")
    assert page.locator("#answer").inner_text().startswith("Asked for 0.0 %, gateskip (budget 1) skips 0.0 %")
    assert page.locator("#choose-saving").get_attribute("aria-valuetext") == "0.0 %"
    assert (page.locator("#tables").inner_text(), page.locator("#answer").inner_text()) != before
    assert "saving=0" in page.url
    again = opened("#" + page.url.partition("#")[2])
    assert again.locator("#answer").inner_text() == page.locator("#answer").inner_text()


@pytest.mark.browser
def test_every_method_can_be_chosen(opened):
    page = opened()
    for choice in METHODS:
        page.select_option("#choose-method", choice)
        assert choice in page.locator("#answer").inner_text()
    page.select_option("#choose-method", "calm")
    page.focus("#choose-saving")
    page.keyboard.press("End")
    assert "no dial value for 40.0 %" in page.locator("#answer").inner_text()
    page.select_option("#choose-method", "mod")
    page.select_option("#choose-view", "scores")
    assert "length: the score" in page.locator("#legend").inner_text()


@pytest.mark.browser
def test_the_text_is_read_by_the_keyboard(opened):
    page = opened("#saving=0.2")
    page.focus("#prompt")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator("#prompt").get_attribute("aria-activedescendant") == "token-2"
    assert page.locator("#readout").inner_text().startswith("Token 2, “has” (function word): ")
    page.keyboard.press("End")
    assert page.locator("[aria-selected=true]").get_attribute("id") == "token-11"
    page.keyboard.press("ArrowRight")  # the answer is a list of its own
    assert page.locator("[aria-selected=true]").get_attribute("id") == "token-11"
    page.focus("#written")
    assert page.locator("[aria-selected=true]").get_attribute("id") == "token-12"


@pytest.mark.browser
def test_a_token_of_markup_is_text(opened):
    page = opened()
    assert "onerror" in page.locator("#token-5").inner_text() and page.locator("#token-5 img").count() == 0
    assert page.title() == "What is skipped: a run <b>"
    nonsense = opened("#method=<b>&saving=x&view=__proto__&theme=y")
    assert nonsense.locator("#answer").inner_text() == page.locator("#answer").inner_text()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1300])
def test_axe_finds_no_violation(opened, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    page = opened(width=width, scheme=scheme)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    found = axe.Axe().run(page).response
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
    assert len(found["passes"]) > 15


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1300])
def test_nothing_but_tables_is_wider_than_the_screen(opened, width):
    page = opened(width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = page.locator("button, select, input, summary, .token").evaluate_all(
        "(all) => all.filter((one) => { const box = one.getBoundingClientRect(); "
        "return box.width && (box.width < 20 || box.height < 24); }).map((one) => one.outerHTML)"
    )
    assert small == []


@pytest.mark.browser
def test_a_long_text_turns_its_dial_at_once(opened, tmp_path):
    path = tmp_path / "long.html"
    path.write_text(render(record_of(inspected(500, 16, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)))), encoding="utf-8")
    page = opened(path=path)
    turn = (
        "() => { const begun = performance.now(); change({ saving: '0.4' }); document.body.offsetHeight; "
        "return performance.now() - begun; }"
    )
    assert page.evaluate(turn) < 3000  # ms; a tenth of it on an idle processor
    assert page.locator(".token").count() == 500


@pytest.mark.browser
def test_without_its_script_it_says_where_the_numbers_are(browser, file):
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(file.as_uri())
    text = page.locator("body").inner_text()
    assert "decisions.csv" in text and "Token-branches skipped" in text
    assert json.loads(page.locator("#data").inner_text())["schema"] == 1
    page.close()
