"""What the conformance suite found out about a method, as it is kept beside the method's source file."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

from adaptive_bench.method.lookup import method_class
from adaptive_bench.spec import MethodSpec

Matrix = dict[str, dict[str, str]]  # spec -> capability -> value
FILE_NAME = "capabilities.json"


def stored_matrix(method: str) -> Matrix:
    """What was probed of a method's specs when its package was made: `capabilities.json` beside its source file.

    Empty if there is no such file; `adaptive-bench check --capabilities` writes one.
    """
    file = Path(inspect.getfile(method_class(MethodSpec(method)))).with_name(FILE_NAME)
    if not file.is_file():
        return {}
    matrix: Matrix = json.loads(file.read_text(encoding="utf-8"))
    return {spec: row for spec, row in matrix.items() if MethodSpec.parse(spec).name == method}
