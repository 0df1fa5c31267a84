from adaptive_bench.tables.unparsable import unparsable_notes


def rows(*scores, metric="unparsable,strict-match", method="gateskip"):
    return [
        {"method": method, "task": "gsm8k", "metric": metric, "level": level / 10, "score": score}
        for level, score in enumerate(scores)
    ]


def test_many_answers_that_cannot_be_read_are_said_with_the_worst_place_and_dense_beside():
    (note,) = unparsable_notes(rows(0.05, 0.31, None) + rows(0.02, 0.02, method="dense"))
    assert "gsm8k: up to 31% of what was written" in note and "(gateskip with 10% saved, of dense 2%)" in note


def test_few_of_them_and_other_metrics_are_not():
    assert not unparsable_notes(rows(0.05, 0.1) + rows(0.9, metric="exact_match,strict-match"))


def test_a_base_that_was_taught_no_form_is_not_what_is_warned_of():
    base = [row | {"train_tokens": 0} for row in rows(1.0, method="base")]
    assert not unparsable_notes(base + [row | {"train_tokens": 9} for row in rows(0.02)])
    assert len(unparsable_notes(base)) == 1
