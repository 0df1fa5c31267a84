"""Charts of the page in headless Chromium: looks, names, values by keyboard and pointer, marked cuts."""

from itertools import pairwise

import pytest
from board_page import board_of, wait

pytestmark = pytest.mark.browser


def test_every_method_has_a_look_of_its_own(browser, tmp_path, make_row):
    rows = [make_row(method=f"method_{number}", level=level) for number in range(40) for level in (0.0, 0.1)]
    page = board_of(rows, browser, tmp_path)
    looks = page.locator("#standing .key").evaluate_all("(all) => all.map((one) => one.innerHTML)")
    assert len(looks) == 40 == len(set(looks))
    page.close()


def test_where_every_method_is_at_the_floor_a_sentence_stands_instead_of_a_chart(opened):
    page = opened()
    assert page.locator(".charts svg").count() == 2
    page.select_option("#choose-board", label="other")
    page.wait_for_selector("#standing >> text=calm")
    assert page.locator(".charts svg").count() == 0
    assert "No method scores above 1 %" in page.locator(".charts").inner_text()


def test_a_chart_is_read_by_keyboard_and_pointer_and_has_names_that_cover_none(opened):
    page = opened()
    figure = page.locator("figure").first
    chart, readout = figure.locator("svg"), figure.locator(".readout")
    chart.focus()
    page.keyboard.press("ArrowRight")
    first = readout.inner_text()
    page.keyboard.press("ArrowRight")
    assert first != readout.inner_text() and "mod at 15 %: " in readout.inner_text()
    page.keyboard.press("ArrowDown")
    assert "gateskip at 15 %: " in readout.inner_text()
    shown = page.locator("section[data-task=nano_math] tr:has-text('gateskip') td:nth-child(3)").inner_text().split()
    assert shown[0].rstrip("‡≈*") in readout.inner_text()
    page.keyboard.press("Enter")
    wait(page, "location.hash.includes('pin=gateskip')")
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
    page = board_of(rows, browser, tmp_path, "#pin=free&pin=mod")
    ticks = page.locator("figure .tick[text-anchor=end]").all_text_contents()
    assert max(map(float, ticks)) < 3
    assert page.locator("figure .beyond").count() == 1 and page.locator("figure .cut").count() >= 5
    assert len(set(page.locator("figure .lit").evaluate_all("(all) => all.map((one) => one.dataset.name)"))) <= 5
    page.close()


@pytest.mark.parametrize(("value", "caption"), [("kept", "% of the dense score"), ("reach", "the line is at 90 %")])
def test_captions_say_what_a_chart_shows(opened, value, caption):
    page = opened(f"#value={value}")
    assert caption in page.locator("figcaption").first.inner_text()
    assert "% of dense" in page.locator("figure svg").first.inner_html()
    assert (">90 %<" in page.locator("figure svg").first.inner_html()) == (value == "reach")
