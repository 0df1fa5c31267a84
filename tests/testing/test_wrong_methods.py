"""A method with one thing wrong with it is caught by the one check that is about it."""

import pytest
import wrong_methods as wrong

from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing.checks.identity import identity
from adaptive_bench.testing.suite import Suite
from adaptive_bench.testing.variants import variants


@pytest.fixture
def failures(register_method):
    """`failures(method class, semantics)`: message by check that failed, on the tiny Llama."""

    def run(method, semantics="bench"):
        register_method(method, "toy")
        results = Suite(MethodSpec("toy", semantics=semantics), "llama").results()
        return {result.check: result.message for result in results if result.status == "failed"}

    return run


@pytest.mark.parametrize(("method", "check"), wrong.WRONG.items())
def test_it_is_caught_by_its_check_alone(failures, method, check):
    assert list(failures(method)) == [check]


@pytest.mark.parametrize(
    ("method", "check", "found"),
    [
        (wrong.LiteralQuantileInDecoding, "identity", "cached decoding must skip nothing"),
        (wrong.FixedPredictorInDecoding, "identity", "cached decoding must skip nothing"),
        (wrong.ServesThePromptAlone, "phases", "what writing saves goes"),
    ],
)
def test_a_rule_of_its_own_for_decoding_is_caught(failures, method, check, found):
    """In `paper` semantics the cache may change decisions; what the dial promises has to hold there all the same."""
    messages = failures(method, "paper")
    assert list(messages) == [check]
    assert found in messages[check]


def test_the_letter_of_gateskip_is_caught():
    """Section 3.7, G3 to G5: it skips at budget 1. It can be asked for, and `check --all` leaves it out."""
    suite = Suite(MethodSpec.parse("gateskip[rule=text]@paper"), "llama")
    assert suite.result(identity).status == "failed"
    assert not any("rule" in str(spec) for spec in variants("gateskip"))


@pytest.mark.parametrize("method", [wrong.Sound, wrong.DrawsForEachDocument])
def test_a_sound_method_passes(failures, method):
    assert failures(method) == {}


def test_draws_have_to_be_declared(failures):
    assert "Set draws = True in its class" in failures(wrong.KeepsItsDrawsToItself)["determinism"]


@pytest.mark.parametrize(
    ("method", "check"),
    [(wrong.SaysItLooksAhead, "causality"), (wrong.SaysItLooksAtTheBatch, "batching")],
)
def test_a_declared_class_has_to_be_true(failures, method, check):
    assert failures(method) == {}  # bench is C0 whatever is declared for paper
    found = failures(method, "paper")
    assert list(found) == [check]
    assert "Set paper_class to what it is" in found[check]


def test_a_start_that_is_declared_has_to_be_true(failures):
    """The bound holds where sums over the width are long; a method that starts intact has nothing to declare."""

    class Declared(wrong.SaysItStartsElsewhere, wrong.StartsElsewhere):
        std = 0.001

    assert failures(Declared) == {}
    assert "at a width of 32 logits differ" in failures(wrong.StartsElsewhere)["intact"]
    assert "at a width of 1024 it is" in failures(wrong.StartsFurtherOffThanItSays)["intact"]
    assert "are the backbone's. Leave it out" in failures(wrong.SaysItStartsElsewhere)["intact"]


@pytest.mark.parametrize("method", [wrong.LooksAheadInPaper, wrong.AveragesInPaper])
def test_paper_semantics_may_be_of_the_declared_class(failures, method):
    assert failures(method, "paper") == {}


def test_an_error_in_the_method_tells_where(failures):
    assert "raised IndexError at" in failures(wrong.Raises)["determinism"]
    assert wrong.__file__ in failures(wrong.Raises)["determinism"]


def test_debug_lets_errors_through(register_method):
    register_method(wrong.Raises, "toy")
    with pytest.raises(IndexError):
        Suite(MethodSpec("toy"), "llama", debug=True).results()
