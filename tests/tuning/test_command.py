"""The commands that `adaptive-bench tune` ends with find the study they are about."""

from pathlib import Path

import pytest

from adaptive_bench.cli.tune import _print
from adaptive_bench.tuning.result import StudyResult, TrialResult

TRIAL = TrialResult("gateskip", 0, "complete", {"shape": "scalar"}, "gateskip[shape=scalar]", {}, 0.01, 0.5)


@pytest.mark.parametrize(("out", "named"), [(Path("runs"), False), (Path("elsewhere"), True)])
def test_the_output_folder_is_named_unless_it_is_the_default(capsys, out, named):
    study = StudyResult("first", {"objective": "area", "confirm": []}, (TRIAL,))
    _print(study, "nano", out)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "--tuned" in line)
    assert line.endswith("--methods gateskip --tuned first" + named * " --out elsewhere")
