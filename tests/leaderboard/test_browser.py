"""The page in headless Chromium: switches, drawer, link, keyboard, both themes, print and a phone's width."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pandas
import pytest
from board_page import board_of, wait

pytestmark = pytest.mark.browser


def _first_column(page):
    return page.locator("section[data-task=nano_math] tbody th .open").all_inner_texts()


def test_numbers_before_and_after_the_script_are_the_same(browser, site, opened):
    plain = browser.new_context(java_script_enabled=False).new_page()
    plain.goto(site.as_uri())
    page = opened()
    for place in ("#board td", "#standing td", "#standing th[scope=row]", "#answer", "#evidence"):
        before = [text.split() for text in plain.locator(place).all_inner_texts()]
        after = [text.replace("☆", "").split() for text in page.locator(place).all_inner_texts()]
        assert before == after and (before or place == "#evidence")


def test_a_switch_changes_the_table_and_the_link_restores_it(opened):
    page = opened()
    before = page.locator("#board").inner_text()
    page.select_option("#choose-axis", "tokens")
    wait(page, "current() && chosen()[0].axis === 'tokens' && !document.querySelector('#status').innerText")
    page.select_option("#choose-value", "kept")
    page.fill("#choose-filter", "gate")
    page.click("section[data-task=nano_math] button.pin")
    after = page.locator("#board").inner_text()
    assert after != before and _first_column(page) == ["gateskip"]
    assert "axis=tokens" in page.url and "pin=gateskip" in page.url
    again = opened("#" + page.url.partition("#")[2])
    assert again.locator("#board").inner_text() == after


def test_a_fragment_that_says_nonsense_is_the_default(opened):
    page = opened("#axis=<b>&sort=__proto__&pin=<img src=x>&open=nobody&theme=x")
    assert page.locator("#board").inner_text() == opened().locator("#board").inner_text()


def test_a_link_to_what_is_not_here_says_so_and_shows_what_is(opened):
    page = opened("#axis=time&level=17&pin=mod")
    said = page.locator("#status").inner_text()
    assert "axis “saved time”, level “17”" in said and "Nothing was timed here" in said
    assert "saved net FLOPs at 15 %" in said and "At 15 %" in page.locator("#answer").inner_text()
    page.select_option("#choose-level", "25")
    assert page.locator("#status").inner_text() == ""
    assert opened("#axis=net&level=25").locator("#status").inner_text() == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_method_s_page_is_reached_by_its_link_and_has_no_violation(opened, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    page = opened(scheme=scheme)
    page.click("#standing a.about[aria-label='page of gateskip']")
    page.wait_for_selector("h2 >> text=Where it stands")
    assert page.url.endswith("/methods/gateskip.html")
    assert "<img src=x onerror=document.title='acted'> 56" in page.locator("pre").all_inner_texts()
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    found = axe.Axe().run(page, options={"preload": False}).response  # it would fetch the style, which nothing may
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
    small = page.locator("a, summary").evaluate_all(
        "(all) => all.filter((one) => { const box = one.getBoundingClientRect(); "
        "return box.width && (box.width < 24 || box.height < 24); }).map((one) => one.outerHTML)"
    )
    assert small == []


def test_sorting_by_the_keyboard_is_announced(opened):
    page = opened()
    page.focus("section[data-task=nano_math] thead th:nth-child(3) button")
    page.keyboard.press("Enter")
    header = page.locator("section[data-task=nano_math] thead th:nth-child(3)")
    assert header.get_attribute("aria-sort") == "descending"
    assert _first_column(page) == ["mod", "gateskip", "random_skip", "dense"]
    page.keyboard.press("Enter")  # the focus stayed on the button
    assert header.get_attribute("aria-sort") == "ascending"
    assert _first_column(page) == ["random_skip", "gateskip", "mod", "dense"]


def test_the_drawer_shows_what_is_behind_a_row_and_gives_the_focus_back(opened):
    page = opened()
    page.focus("section[data-task=nano_math] .open >> text=gateskip")
    opener = page.evaluate("document.activeElement.dataset.key")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog >> text=config.yaml")  # read from beside the page
    text = page.locator("dialog").inner_text()
    assert "config.yaml" in text and "adaptive-bench run" in text and "✓ right" in text
    assert "<img src=x onerror" in text and page.title() == "adaptive-bench leaderboard"
    assert "open=gateskip" in page.url
    # Whether the focus is lost between the dialog's closing and its event, which comes a task later.
    page.evaluate(
        "window.lost = 0; document.querySelector('dialog').addEventListener('close', "
        "() => { window.lost += document.activeElement === document.body; }, {capture: true})"
    )
    page.keyboard.press("Escape")
    wait(page, "!location.hash.includes('open=')")  # the page has heard of it
    assert not page.locator("dialog").is_visible()
    assert page.evaluate("document.activeElement.dataset.key") == opener and "nano_math" in opener
    assert page.evaluate("window.lost") == 0
    linked = opened("#open=gateskip")
    linked.wait_for_selector("dialog >> text=config.yaml")
    linked.keyboard.press("Escape")
    wait(linked, "document.activeElement.innerText === 'gateskip'")


def test_a_cell_says_what_the_paired_test_found(opened):
    page = opened()
    tips = page.locator("section[data-task=nano_math] td:has(.rank)").evaluate_all(
        "(all) => all.map((one) => one.title)"
    )
    assert len(tips) == 9 and sum("leads the column" in tip for tip in tips) == 3
    assert any("mod is better by +25.0 [" in tip and "(Holm), n = 2 × 200" in tip for tip in tips)
    assert "best is better by" in opened("#open=gateskip").locator("dialog").inner_text()


def test_columns_show_what_each_method_is_and_sort_by_it(opened):
    page = opened()
    page.select_option("#choose-columns", "facts")
    headers = page.locator("section[data-task=nano_math] thead th").all_inner_texts()
    assert headers[:4] == ["method", "semantics", "causality class", "KV policy"] and "15 %" not in headers
    page.click("section[data-task=nano_math] thead th:nth-child(3) button")
    assert _first_column(page)[:2] == ["gateskip", "mod"]
    assert page.locator("section[data-task=nano_math] .batched").all_inner_texts() == ["C2"]
    assert "columns=facts" in page.url and "sort=fact1-up" in page.url


def test_a_large_board_shows_its_first_methods_until_all_are_asked_for(browser, tmp_path, make_row):
    rows = [make_row(method=f"method_{number}", level=level) for number in range(230) for level in (0.0, 0.1)]
    page = board_of(rows, browser, tmp_path)
    assert page.locator("#board tbody tr").count() == 50
    assert page.locator(".charts .series").count() == 24
    page.click("text=show all")
    assert page.locator("#board tbody tr").count() == 230 and "rows=all" in page.url
    page.fill("#choose-filter", "method_22")
    assert page.locator("#board tbody tr").count() == 11
    page.close()


def test_a_failure_is_said_and_marks_are_there(opened):
    page = opened()
    assert "✗ failed: mod: out of <b>memory</b>" in page.locator(".problems").inner_text()
    assert "‡" in page.locator("#board").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("fragment", ["", "#open=gateskip"])
def test_axe_finds_no_violation(opened, scheme, fragment):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    page = opened(fragment, scheme=scheme)
    found = axe.Axe().run(page).response
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
    assert len(found["passes"]) > 15


def test_the_theme_can_be_forced(opened):
    page = opened(scheme="light")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.select_option("#choose-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_a_phone_scrolls_tables_and_nothing_else(opened):
    page = opened(width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_intervals_stand_below_scores_where_a_table_would_be_too_wide(opened):
    page = opened(width=1600)
    below = (
        "(cell) => { const [one, other] = cell.querySelectorAll('.whole'); "
        "return other.getBoundingClientRect().top - one.getBoundingClientRect().top; }"
    )
    cell = page.locator("td:has(.rank)").first
    assert page.locator("table.stacked").count() == 0 and cell.evaluate(below) < 8
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_selector("table.stacked")
    assert cell.evaluate(below) > 12
    page.set_viewport_size({"width": 1600, "height": 900})
    page.wait_for_selector("table.levels:not(.stacked)")


def test_it_prints_without_controls(opened, tmp_path):
    page = opened()
    page.emulate_media(media="print")
    assert not page.locator("#controls").is_visible()
    assert page.locator("#board table").first.is_visible()
    page.pdf(path=tmp_path / "board.pdf")
    assert (tmp_path / "board.pdf").stat().st_size > 10_000


def test_another_model_is_read_when_it_is_chosen_and_the_link_restores_it(opened):
    page = opened()
    assert "calm" not in page.locator("body").inner_text()
    page.select_option("#choose-board", label="other")
    page.wait_for_selector("#standing >> text=calm")
    assert "gateskip" not in page.locator("#standing").inner_text() + page.locator("#board").inner_text()
    assert "At 15 %" in page.locator("#answer").inner_text() and "sandbox" in page.locator("#meta").inner_text()
    again = opened("#" + page.url.partition("#")[2])
    again.wait_for_selector("#standing >> text=calm")
    assert again.locator("#standing").inner_text() == page.locator("#standing").inner_text()


@pytest.mark.parametrize("width", [390, 768, 1300])
def test_the_answer_stands_on_the_first_screen(opened, width):
    page = opened(width=width)
    words = page.locator("#answer").inner_text().split()
    assert words[:3] == ["At", "15", "%"] and len(words) < 25
    for place in ("#answer", "#standing tbody tr:first-child"):
        box = page.locator(place).first.bounding_box()
        assert box["y"] + box["height"] <= 900 and box["x"] >= 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 1300])
def test_targets_are_large_enough_for_a_finger(opened, width):
    page = opened("#columns=both", width=width)
    small = page.locator("button, select, input, summary, a").evaluate_all(
        "(all) => all.filter((one) => { const box = one.getBoundingClientRect(); "
        "return box.width && (box.width < 24 || box.height < 24); }).map((one) => one.outerHTML)"
    )
    assert small == []


def test_it_works_from_a_static_server_as_from_a_disk(browser, site):
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(site.parent)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        page, wrong = browser.new_page(), []
        page.on("console", lambda line: line.type in ("error", "warning") and wrong.append(line.text))
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.select_option("#choose-board", label="other")
        page.wait_for_selector("#standing >> text=calm")
        page.click("#standing a.about[aria-label='page of calm']")
        page.wait_for_selector("h2 >> text=Where it stands")
        assert page.evaluate("getComputedStyle(document.querySelector('.note')).fontSize") == "14px"
        with page.expect_navigation():
            page.click("text=← Leaderboard")
        with page.expect_download() as loaded:
            page.click("a.download >> text=CSV")
        assert len(pandas.read_csv(loaded.value.path(), compression="gzip")) > 10
        assert [text for text in wrong if "favicon" not in text and "404" not in text] == []
    finally:
        server.shutdown()
        page.close()
