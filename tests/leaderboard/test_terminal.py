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
    assert "*" not in render([make_row()])
