"""The page in headless Chromium: switches, drawer, link, keyboard, both themes, print and a phone's width."""

import json
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from shutil import which
from threading import Thread

import pandas
import pytest

from adaptive_bench.leaderboard.site import build
from adaptive_bench.store.digest import sealed
from adaptive_bench.store.results import write_run
from adaptive_bench.store.schema import SCHEMA

pytestmark = pytest.mark.browser
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
    (sweep / "config.json").write_text(json.dumps({"task": "nano_math", "method": "gateskip"}))
    about = {"schema": SCHEMA, "savings": {"tokens": 0.1, "core": 0.1, "net": 0.1}}
    (sweep / "0.1.json").write_text(sealed(json.dumps(about)))
    sample = {"doc": 0, "target": "56", "output": "<img src=x onerror=document.title='acted'> 56", "correct": 1.0}
    (sweep / "0.1.samples.jsonl").write_text(json.dumps(sample) + "\n")
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
    pages, wrong = [], []

    def open_page(fragment="", width=1280, scheme="light"):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("request", lambda request: request.url.startswith("file:") or wrong.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda line: line.type in ("error", "warning") and wrong.append(line.text))
        page.goto(f"{site.as_uri()}{fragment}")
        page.wait_for_selector("html[data-ready]")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert wrong == []


def _wait(page, condition):
    """Until a condition holds. Asked from here: the page's policy forbids what `wait_for_function` evaluates in it."""
    for _ in range(500):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never came to be: {condition}")


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
    _wait(page, "current() && chosen()[0].axis === 'tokens' && !document.querySelector('#status').innerText")
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
    _wait(page, "!location.hash.includes('open=')")  # the page has heard of it
    assert not page.locator("dialog").is_visible()
    assert page.evaluate("document.activeElement.dataset.key") == opener and "nano_math" in opener
    assert page.evaluate("window.lost") == 0
    linked = opened("#open=gateskip")
    linked.wait_for_selector("dialog >> text=config.yaml")
    linked.keyboard.press("Escape")
    _wait(linked, "document.activeElement.innerText === 'gateskip'")


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
    (tmp_path / "table.json").write_text(json.dumps(rows))
    write_run(tmp_path, {})
    build([tmp_path / "table.json"], tmp_path / "site")
    page = browser.new_page()
    page.goto((tmp_path / "site" / "index.html").as_uri())
    page.wait_for_selector("html[data-ready]")
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


def test_every_method_has_a_look_of_its_own(browser, tmp_path, make_row):
    rows = [make_row(method=f"method_{number}", level=level) for number in range(40) for level in (0.0, 0.1)]
    (tmp_path / "table.json").write_text(json.dumps(rows))
    write_run(tmp_path, {})
    build([tmp_path / "table.json"], tmp_path / "site")
    page = browser.new_page()
    page.goto((tmp_path / "site" / "index.html").as_uri())
    page.wait_for_selector("html[data-ready]")
    looks = page.locator("#standing .key").evaluate_all("(all) => all.map((one) => one.innerHTML)")
    assert len(looks) == 40 == len(set(looks))
    page.close()


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


def test_where_every_method_is_at_the_floor_a_sentence_stands_instead_of_a_chart(opened):
    page = opened()
    assert page.locator(".charts svg").count() == 2
    page.select_option("#choose-board", label="other")
    page.wait_for_selector("#standing >> text=calm")
    assert page.locator(".charts svg").count() == 0
    assert "No method scores above 1 %" in page.locator(".charts").inner_text()


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


def test_a_chart_is_read_by_keyboard_and_pointer_and_has_names_that_cover_none(opened):
    page = opened()
    figure = page.locator("figure").first
    chart, readout = figure.locator("svg"), figure.locator(".readout")
    chart.focus()
    page.keyboard.press("ArrowRight")
    first = readout.inner_text()
    page.keyboard.press("ArrowRight")
    assert first != readout.inner_text() and "gateskip at 15 %: " in readout.inner_text()
    page.keyboard.press("ArrowDown")
    assert "mod at 15 %: " in readout.inner_text()
    shown = page.locator("section[data-task=nano_math] tr:has-text('mod') td:nth-child(3)").inner_text().split()
    assert shown[0].rstrip("‡≈*") in readout.inner_text()
    page.keyboard.press("Enter")
    _wait(page, "location.hash.includes('pin=mod')")
    boxes = figure.locator("text.name").evaluate_all(
        "(all) => all.map((one) => { const box = one.getBoundingClientRect(); return [box.top, box.bottom]; })"
    )
    boxes.sort()
    assert len(boxes) > 2 and all(one[1] <= other[0] + 2 for one, other in pairwise(boxes))


def test_a_value_far_from_the_others_is_marked_and_does_not_press_them_together(browser, tmp_path, make_row):
    about = {"metric": "bits_per_byte,none", "phase": "all"}
    rows = []
    for number, method in enumerate(("dense", "mod", "calm", "free", "gateskip")):
        for level in (0.0, 0.1, 0.2):
            score = 12.7 if (method, level) == ("free", 0.2) else 1 + 0.1 * number * level
            rows.append(make_row(method=method, level=level, score=score, low=score - 0.01, high=score + 9, **about))
    (tmp_path / "table.json").write_text(json.dumps(rows))
    write_run(tmp_path, {})
    build([tmp_path / "table.json"], tmp_path / "site")
    page = browser.new_page()
    page.goto((tmp_path / "site" / "index.html").as_uri() + "#pin=free&pin=mod")
    page.wait_for_selector("html[data-ready]")
    ticks = page.locator("figure .tick[text-anchor=end]").all_text_contents()
    assert max(map(float, ticks)) < 3
    assert page.locator("figure .beyond").count() == 1 and page.locator("figure .cut").count() >= 5
    assert len(set(page.locator("figure .lit").evaluate_all("(all) => all.map((one) => one.dataset.name)"))) <= 5
    page.close()


@pytest.mark.parametrize(("value", "caption"), [("kept", "% of the dense score"), ("reach", "the line stands at 90 %")])
def test_captions_say_what_a_chart_shows(opened, value, caption):
    page = opened(f"#value={value}")
    assert caption in page.locator("figcaption").first.inner_text()
    assert "% of dense" in page.locator("figure svg").first.inner_html()
    assert (">90 %<" in page.locator("figure svg").first.inner_html()) == (value == "reach")


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
