import pytest

from adaptive_bench.cli.failures import reported
from adaptive_bench.errors import EnvironmentProblem, Interrupted, TrainingDiverged, UsageError


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (UsageError("x"), 2),
        (EnvironmentProblem("x"), 1),
        (TrainingDiverged("x"), 1),
        (Interrupted("x"), 130),
        (OSError("x"), 1),
        (GeneratorExit("x"), 1),
    ],
)
def test_errors_become_one_paragraph_and_an_exit_code(capsys, error, exit_code):
    with pytest.raises(SystemExit) as end, reported(debug=False):
        raise error
    assert end.value.code == exit_code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_debug_shows_the_traceback_before_the_paragraph(capsys):
    with pytest.raises(SystemExit) as end, reported(debug=True):
        raise UsageError("x")
    text = capsys.readouterr().err
    assert end.value.code == 2
    assert text.index("Traceback") < text.index("Usage error: x")


def test_a_defect_says_its_kind_and_how_to_see_more(capsys):
    with pytest.raises(SystemExit), reported(debug=False):
        raise ZeroDivisionError("division by zero")
    text = capsys.readouterr().err
    assert "Defect of adaptive-bench: ZeroDivisionError: division by zero" in text
    assert "--debug" in text


def test_long_paths_are_not_broken(capsys):
    path = "/data/" + "very-long-name-" * 12
    with pytest.raises(SystemExit), reported(debug=False):
        raise UsageError(f"No such folder: {path}")
    assert path in capsys.readouterr().err
