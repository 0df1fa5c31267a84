"""Every key of a config that takes a number, given what is none: refused by the key's name, before any work."""

from typing import get_args

import pytest

from adaptive_bench.config import keys

WRONG = ("abc", "[a]", "{a: 1}", ".nan", "1e400", "9" * 30, "''", "2026-11-20", "[[1]]")


def _kinds(annotation):
    inner = get_args(annotation)
    return {annotation}.union(*map(_kinds, inner)) if inner else {annotation}


NUMBERS = [name for name, about in keys().items() if _kinds(about.annotation) & {int, float}]
# No gradient is ever as long, and no clipping is what is meant; rates by method are keys with numbers.
MEANT = {("train.clip_norm", "9" * 30), ("train.method_learning_rates", "{a: 1}")}


@pytest.mark.parametrize("key", NUMBERS)
def test_what_is_no_number_is_refused(command, tmp_path, key):
    for value in WRONG:
        if (key, value) in MEANT:
            continue
        result = command("run", "--set", f"{key}={value}", "--dry-run")
        told = " ".join(result.stderr.split())
        assert result.exit_code == 2, (value, told)
        assert "Usage error" in told and key in told.replace(" ", ""), (value, told)
        assert not any(tmp_path.iterdir())


def test_most_keys_are_numbers():
    assert {"train.steps", "train.target", "seeds", "levels", "evaluation.closeness", "cell_timeout"} <= set(NUMBERS)
