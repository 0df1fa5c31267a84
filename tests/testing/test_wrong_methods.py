"""A method with one thing wrong with it is caught by the one check that is about it."""

import pytest
import wrong_methods as wrong

from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing.checks import CHECKS
from adaptive_bench.testing.checks.attachment import identity
from adaptive_bench.testing.suite import Suite, variants

CHECK = {check.name: check for check in CHECKS}
# Method, semantics, the check that is about it, part of its message. In `paper` semantics the cache may change
# decisions; what the dial promises has to hold there all the same.
CAUGHT = [
    *((method, "bench", check, "") for method, check in wrong.WRONG.items()),
    (wrong.LiteralQuantileInDecoding, "paper", "identity", "cached decoding must skip nothing"),
    (wrong.FixedPredictorInDecoding, "paper", "identity", "cached decoding must skip nothing"),
    (wrong.ServesThePromptAlone, "paper", "phases", "what writing saves goes"),
    (wrong.SaysItLooksAhead, "paper", "causality", "Set paper_class to what it is"),
    (wrong.SaysItLooksAtTheBatch, "paper", "batching", "Set paper_class to what it is"),
]


class DeclaresItsStart(wrong.SaysItStartsElsewhere, wrong.StartsElsewhere):
    """The bound holds where sums over the width are long."""

    std = 0.001


SOUND = [
    (wrong.DrawsForEachDocument, "bench", "independence"),
    (DeclaresItsStart, "bench", "intact"),
    (wrong.SaysItLooksAhead, "bench", "causality"),  # bench is C0 whatever is declared for paper
    (wrong.SaysItLooksAtTheBatch, "bench", "batching"),
    (wrong.LooksAheadInPaper, "paper", "causality"),
    (wrong.AveragesInPaper, "paper", "batching"),
]


@pytest.fixture
def suite(register_method):
    """`suite(method class, semantics)`: the checks on the tiny Llama."""

    def make(method, semantics="bench", **settings):
        register_method(method, "toy")
        return Suite(MethodSpec("toy", semantics=semantics), "llama", **settings)

    return make


def failed(suite):
    return [result.check for result in suite.results() if result.status == "failed"]


@pytest.mark.parametrize(("method", "semantics", "check", "found"), CAUGHT)
def test_it_is_caught_by_its_check(suite, method, semantics, check, found):
    result = suite(method, semantics).result(CHECK[check])
    assert result.status == "failed" and found in result.message


@pytest.mark.slow
@pytest.mark.parametrize(("method", "semantics", "check"), [row[:3] for row in CAUGHT])
def test_and_by_no_other(suite, method, semantics, check):
    assert failed(suite(method, semantics)) == [check]


@pytest.mark.parametrize(("method", "semantics", "check"), SOUND)
def test_what_is_declared_may_be_so(suite, method, semantics, check):
    assert suite(method, semantics).result(CHECK[check]).status == "passed"


@pytest.mark.parametrize(
    ("method", "semantics"),
    [(wrong.Sound, "bench"), *(pytest.param(*row[:2], marks=pytest.mark.slow) for row in SOUND)],
)
def test_a_sound_method_passes(suite, method, semantics):
    assert failed(suite(method, semantics)) == []


def test_the_letter_of_gateskip_is_caught():
    """Section 3.7, G3 to G5: it skips at budget 1. It can be asked for, and `check --all` leaves it out."""
    suite = Suite(MethodSpec.parse("gateskip[rule=text]@paper"), "llama")
    assert suite.result(identity).status == "failed"
    assert not any("rule" in str(spec) for spec in variants("gateskip"))


def test_draws_have_to_be_declared(suite):
    assert "Set draws = True in its class" in suite(wrong.KeepsItsDrawsToItself).result(CHECK["determinism"]).message


def test_a_start_that_is_declared_has_to_be_true(suite):
    """A method that starts intact has nothing to declare."""

    def said(method):
        return suite(method).result(CHECK["intact"]).message

    assert "at a width of 32 logits differ" in said(wrong.StartsElsewhere)
    assert "at a width of 1024 it is" in said(wrong.StartsFurtherOffThanItSays)
    assert "are the backbone's. Leave it out" in said(wrong.SaysItStartsElsewhere)


def test_an_error_in_the_method_tells_where(suite):
    message = suite(wrong.Raises).result(CHECK["determinism"]).message
    assert "raised IndexError at" in message and wrong.__file__ in message


def test_debug_lets_errors_through(suite):
    with pytest.raises(IndexError):
        suite(wrong.Raises, debug=True).results()
