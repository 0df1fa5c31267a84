"""Test documents in a training text, counted as lm-eval's own decontamination counts them."""

import random

import pytest
from lm_eval.decontamination.janitor import Janitor, word_ngrams

from adaptive_bench.data.overlap import FEWEST, RUN, OverlapCounter, words_of


def found(questions, texts):
    standing = OverlapCounter(questions)
    for text in texts:
        standing.look(text, words_of(text))
    return standing.found


def of_lm_eval(questions, texts):
    janitor = Janitor()

    def runs(text):
        return set(word_ngrams(janitor.normalize_string(text), RUN))

    there = set().union(*map(runs, texts))
    return sum(bool(runs(question) & there) for question in questions)


@pytest.mark.parametrize("seed", range(8))
def test_documents_of_thirteen_words_and_more_are_those_that_lm_eval_counts(seed):
    draw = random.Random(seed)
    # Few words, so that runs are shared by chance; marks and capitals between them.
    words = ["The", "cat,", "sat", "ON", "a", "mat.", "naïve", "—", "'t", "12", "!"]

    def text(least, most):
        return " ".join(draw.choices(words, weights=[40, *[1] * 10], k=draw.randint(least, most)))

    questions = [f"{number} {text(RUN, 60)} {number}" for number in range(300)]
    texts = [text(1, 200) for _ in range(40)] + [question[5:-5] for question in questions[:20]]
    expected = of_lm_eval(questions, texts)
    assert found(questions, texts) == expected and 20 <= expected < 300


def test_a_run_ends_with_its_text():
    words = [f"w{k}" for k in range(RUN)]
    question, *halves = map(" ".join, (words, words[: RUN // 2], words[RUN // 2 :]))
    assert found([question], []) == found([question], halves) == 0
    assert found([question], [question]) == 1


def test_shorter_documents_stand_there_as_a_whole():
    nine, four = "why do cats like to sleep in the sun", "3 + 1?"
    assert FEWEST <= len(nine.split()) < RUN
    assert found([nine], [f"He asked: {nine}? Nobody knew."]) == 1
    assert found([nine], ["why do cats like to sleep in the shade"]) == 0
    assert found([four, "3 - 1?"], [f"{four} It is 4.", "3 1"]) == 0  # without marks they would be alike
    assert found([four, "3 - 1?"], [f" {four} "]) == 1


def test_words_of_the_task_are_no_words_of_a_document():
    template = "Read the following question with care and then write the letter of the right answer only: {} Answer:"
    questions = [template.format(" ".join(f"w{n}x{k}" for k in range(15))) for n in range(5)]
    assert found(questions, [template.format(f"another question {n}") for n in range(5)]) == 0
    assert found(questions, [questions[3]]) == 1
