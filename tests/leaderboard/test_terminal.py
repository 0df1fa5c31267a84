import pytest

from adaptive_bench.leaderboard.terminal import render


def test_only_the_headline_metric_of_each_task_is_shown(make_row):
    flexible = make_row(metric="exact_match,flexible-extract", score=0.5)
    text = render([make_row(), flexible, make_row(task="other", metric="acc,none")])
    assert "strict-match" in text
    assert "flexible" not in text
    assert "other: acc,none" in text


def test_partial_score_is_explained(make_row):
    assert "* not every seed" in render([make_row(status="partial")])
    assert "89.8*" in render([make_row(status="partial")])
    assert "100.0*" in render([make_row(method="dense", status="partial", level=0.0)])
    assert "*" not in render([make_row()])


LEVELS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)
METHODS = (
    "dense",
    "router_tuned_mod",
    "gateskip[gate=scalar,kv=copy_below]",
    "a_name_without_any_place_to_break_it_at",
)


def rows_of(make_row, methods=METHODS, levels=LEVELS, **changes):
    return [make_row(method=method, level=level, **changes) for method in methods for level in levels]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"score": 1.0, "low": 0.971, "high": 1.0, "status": "partial", "beyond_target": True},
        {"metric": "word_perplexity,none", "score": 123456.0, "low": 101234.0, "high": 140000.0},
        {"score": None, "low": None, "high": None},
        {"axis": "time", "timing": "batch 8, 128+128 tokens, 1 thread, Some Processor With A Long Name @ 2.40GHz"},
        {"axis": "projected", "projected_shape": "llama-3.2-1b"},
        {"phase": "decode"},
    ],
)
def test_it_fits_80_columns_whatever_the_rows(make_row, changes):
    text = render(rows_of(make_row, **changes))
    assert max(map(len, text.splitlines())) <= 80
    shown = "".join(line[:30].strip() for line in text.splitlines() if line.strip())
    assert "router_tuned_mod" in shown or "router_tuned_m" in shown


def test_a_line_has_the_curve_and_what_is_kept_at_every_level(make_row):
    dense = [make_row(method="dense", level=level, score=None if level else 0.8, low=None, high=None)
             for level in LEVELS]  # fmt: skip
    scores = (0.8, 0.8, 0.6, 0.4, 0.2, None)
    mod = [make_row(method="mod", level=level, score=score, low=None, high=None)
           for level, score in zip(LEVELS, scores, strict=True)]  # fmt: skip
    text = render(dense + mod)
    line = next(line for line in text.splitlines() if line.startswith("mod"))
    assert line.split() == ["mod", "██▆▅▃·", "100.0", "100.0", "75.0", "50.0", "25.0", "n/a"]
    assert "% of the dense score, 80.0" in text and "--wide" in text


@pytest.fixture
def compared(make_row):
    """`compared(mod=0.8, ...)`: methods with these scores, each 0.05 more or less, at 15 %, where dense has 1."""

    def make(levels=(0.0, 0.15), **scores):
        rows = [make_row(method="dense", level=0.0, score=1.0, low=0.95, high=1.0)]
        for method, score in scores.items():
            ends = {"low": score - 0.05, "high": min(score + 0.05, 1.0)}
            rows += [make_row(method=method, level=level, score=score, **ends) for level in levels]
        return render(rows)

    return make


def test_the_title_says_what_the_cells_are(compared, make_row):
    assert compared(mod=0.8).startswith(
        "nano_math: % of the dense score, by saved net FLOPs (exact_match,strict-match)\n"
    )
    alone = render([make_row(method="mod", level=0.15)])  # nothing to be a share of: the cells are scores
    assert alone.startswith("nano_math: exact_match,strict-match (%) by saved net FLOPs\n")


def test_the_answer_stands_above_the_table(compared):
    text = " ".join(compared(random_skip=0.2, static_depth=0.3, mod=0.8, calm=0.5).split())
    before, _, _ = text.partition("method curve")
    assert "At 15 % saved net FLOPs, on nano_math mod keeps 80.0 % [75.0, 85.0] of the dense score" in before
    assert "ahead of random skipping" in before and "ahead of every other method" in before


def test_that_the_control_of_whole_layers_was_not_measured_is_said(compared):
    text = " ".join(compared(mod=0.8, random_skip=0.2).split())
    assert "skipping whole layers would keep as much was not" in text
    assert "whole layers would keep" not in " ".join(compared(mod=0.8, static_depth=0.78).split())


@pytest.mark.parametrize("scores", [{}, {"random_skip": 0.5}, {"static_depth": 0.5}])
def test_without_a_method_there_is_no_answer(compared, scores):
    assert "At 15 %" not in compared(**scores)


def test_methods_stand_best_first_behind_what_they_are_compared_with(compared):
    lines = compared(random_skip=0.2, base=0.9, calm=0.5, mod=0.8).splitlines()
    names = [line.split()[0] for line in lines if "  " in line and line[0].isalpha()]
    assert [name for name in names if name != "method"] == ["dense", "base", "mod", "calm", "random_skip"]


def test_intervals_have_a_column_whatever_else_has_to_give_way(compared):
    text = compared(mod=0.8)
    assert "[75, 85]" in text and "at 15 %" in text and max(map(len, text.splitlines())) <= 80
    text = compared(**{"a_method_with_a_name_that_leaves_no_room": 0.8}, levels=LEVELS[:4])
    assert "[75, 85]" in text and "at 15 %" in text and max(map(len, text.splitlines())) <= 80
    text = compared(**{"a_method_with_a_name_that_leaves_no_room[and=parameters]": 0.8}, levels=LEVELS)
    header = next(line for line in text.splitlines() if line.startswith("method"))
    assert "[75, 85]" in text and " 15 %" in header and max(map(len, text.splitlines())) <= 80


def test_where_lower_is_better_a_higher_bar_is_better_still(make_row):
    facts = {"metric": "bits_per_byte,none", "low": None, "high": None}
    rows = [make_row(method="dense", level=0.0, score=1.0, **facts)]
    rows += [make_row(level=level, score=score, **facts) for level, score in ((0.0, 1.0), (0.1, 2.0))]
    line = next(line for line in render(rows).splitlines() if line.startswith("gateskip"))
    assert line.split() == ["gateskip", "█▅", "100.0", "50.0"]


def test_levels_are_left_out_before_names_become_unreadable(make_row):
    many = tuple(place / 40 for place in range(12))
    text = render(rows_of(make_row, ("dense", "mod"), many, status="partial"))
    header = next(line for line in text.splitlines() if line.startswith("method"))
    assert header.split()[2:4] == ["0", "%"] and header.split()[-4:] == ["27.5", "%", "95", "%"]
    assert "each of 12" in text


def test_wide_shows_everything(make_row):
    text = render(rows_of(make_row, parameters_added=7), wide=True)
    header = next(line for line in text.splitlines() if line.startswith("method"))
    assert [part for part in header.split() if part != "%"][1:] == ["0", "5", "10", "15", "20", "25"]
    assert "saved there" in text and "parameters added" in text and "--wide" not in text
    assert all(method in text for method in METHODS)


WORTH = {"shuffled_score": 0.41, "decisions_worth": 0.4884, "decisions_low": 0.401, "decisions_high": 0.573}
WORTH |= {"shuffled_apart": 0.0}


def test_decisions_stand_beside_the_scores_at_the_level_next_to_15_percent(make_row):
    rows = rows_of(make_row, ("dense",)) + rows_of(make_row, ("gateskip",), **WORTH)
    text = render(rows)
    (line,) = (line for line in text.splitlines() if "48.8" in line)
    assert line.split() == ["gateskip", "15", "%", "89.8", "41.0", "+48.8", "[+40.1,", "+57.3]"]
    assert "loses with the decisions of other tokens" in text and "≠" not in text and "worth" not in text
    assert "loses with" not in render(rows_of(make_row))
    wide = render(rows, wide=True)
    assert sum("+48.8" in line for line in wide.splitlines()) == len(LEVELS)


def test_a_control_that_saves_another_amount_is_marked(make_row):
    """So is one that was not measured at the method's dial values: that it saves the same is not known."""
    for apart in (-0.021, None):
        rows = rows_of(make_row, ("gateskip",), **WORTH | {"shuffled_apart": apart})
        assert "+48.8≠ [" in render(rows) and "not measured at one dial value" in render(rows)


def test_a_table_by_another_axis_says_that_the_mark_goes_by_net_flops(make_row):
    for changes, axis in (({}, ""), ({"axis": "tokens"}, "saved tokens"), ({"phase": "decode"}, "FLOPs of decode")):
        rows = rows_of(make_row, ("gateskip",), **WORTH | {"shuffled_apart": 0.03} | changes)
        text = render(rows)
        said = " ".join(text.split())
        assert "net savings of the two differ by more than 2 points" in said
        assert ("this mark goes by net FLOPs of all phases" in said) == bool(axis) and axis in said
        assert all(len(line) <= 80 for line in text.splitlines())


def test_decisions_fit_80_columns_and_lower_scores_have_their_own_unit(make_row):
    rows = rows_of(make_row, metric="word_perplexity,none", score=123456.0, low=101234.0, high=140000.0)
    worth = {"shuffled_score": 223456.0, "decisions_worth": 1e5, "decisions_low": -2e5, "decisions_high": 3e5}
    text = render([row | worth for row in rows])
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "+1e+05" in text
