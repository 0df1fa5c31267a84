"""The protocol's table of the methods that came later shows its record."""

import json
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
RECORD = json.loads((DOCS / "records/nano_later_methods.json").read_text(encoding="utf-8"))
NOTHING = "–"


def _cell(score):
    return NOTHING if score is None else f"{score['value']}{score['marks']} [{score['low']}, {score['high']}]"


def _lines():
    yield f"| at 15 % net | % of dense | {' | '.join(RECORD['tasks'])} ↓ | with others' decisions |"
    yield "|---" * (len(RECORD["tasks"]) + 3) + "|"
    for one in RECORD["methods"]:
        value, low, high = one["of_dense"]
        whole = NOTHING if value == NOTHING else f"{value} [{low}, {high}]"
        scores = " | ".join(map(_cell, one["scores"]))
        yield f"| `{one['method']}` | {whole} | {scores} | {one['lost_with_others_decisions']} |"


def test_the_protocol_shows_the_later_methods_as_measured():
    expected = "\n".join(_lines())
    assert f"\n\n{expected}\n\n" in (DOCS / "protocol.md").read_text(encoding="utf-8"), (
        f"docs/protocol.md is to have:\n{expected}"
    )
