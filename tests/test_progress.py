import io
import shlex
import subprocess
import sys

import pytest
from rich.console import Console

from adaptive_bench.live_display import RichReporter, open_reporter
from adaptive_bench.progress import EtaEstimator, PlainReporter, duration


class Clock:
    """Time that passes when told to."""

    now_s = 0.0

    def monotonic(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("adaptive_bench.progress.time", clock)
    return clock


def test_plain_lines_are_few_and_say_how_long_it_still_takes(clock):
    stream = io.StringIO()
    with PlainReporter(stream, every_s=10).task("train", total=40) as meter:
        for _ in range(40):
            clock.now_s += 1
            meter.advance(1, loss=0.25)
    assert stream.getvalue().splitlines() == [
        "train: 10/40, loss 0.25, 0:30 left",
        "train: 20/40, loss 0.25, 0:20 left",
        "train: 30/40, loss 0.25, 0:10 left",
        "train: 40/40 in 0:40",
    ]


def test_what_comes_before_the_first_unit_does_not_count_as_its_pace():
    eta = EtaEstimator()
    assert eta.left_s(20.0, 10) is None
    eta.note(30.0, 1)
    assert eta.left_s(30.0, 10) is None
    eta.note(34.0, 3)
    assert eta.left_s(34.0, 10) == 14.0
    assert eta.left_s(35.0, 10) == 13.0  # it counts down while nothing is said
    assert eta.left_s(99.0, 10) == 0.0


def test_given_up_work_is_not_shown_as_done(clock):
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), PlainReporter(stream).task("train", total=5) as meter:
        meter.advance(2)
        raise KeyboardInterrupt
    with PlainReporter(stream).task("train base", total=0):  # nothing is said of work that there is none of
        pass
    assert stream.getvalue() == "train: 2/5 in 0:00\n"


def test_live_display_shows_nested_work_and_its_own_lines():
    stream = io.StringIO()
    with (
        RichReporter(Console(file=stream, force_terminal=True, width=120)) as reporter,
        reporter.task("all", total=2) as outer,
        reporter.task("train [x]", total=2) as inner,
    ):
        inner.advance(1, loss=0.5)
        outer.advance()
        reporter.line("batch halved [to 16]")
        reporter.progress.refresh()
    text = stream.getvalue()
    assert all(part in text for part in ("all", "train [x]", "1/2", "loss 0.5", "batch halved [to 16]"))


def test_no_terminal_means_plain_lines(capsys):
    with open_reporter() as reporter:
        assert isinstance(reporter, PlainReporter)


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (75, "1:15"), (3700, "1:01:40")])
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_nobody_reading_is_no_reason_to_stop():
    """`adaptive-bench run 2>&1 | head -1`"""
    script = (
        "import sys, time; from adaptive_bench.progress import PlainReporter\n"
        "reporter = PlainReporter()\n"
        "for number in range(2000): reporter.line(f'line {number} ' + 'x' * 100)\n"
        "print('worked on', flush=True)"
    )
    program = f"{shlex.quote(sys.executable)} -c {shlex.quote(script)} 2>&1 >&3 | head -1 >/dev/null"
    done = subprocess.run(["bash", "-c", f"exec 3>&1; {program}; exit ${{PIPESTATUS[0]}}"], capture_output=True)
    assert (done.returncode, done.stdout.decode()) == (0, "worked on\n")
