"""The figures that docs/headroom.md shows of the nano model are those of their record."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_is_the_record():
    record = json.loads((ROOT / "docs/records/nano_headroom.json").read_text(encoding="utf-8"))
    expected = []
    for task in record["tasks"]:
        if task["unit"] != "share":
            continue  # texts are asked once, so that nothing can be crossed
        found = [
            (f"{100 * one['level']:.0f} %", one["static"], one["cross_fitted"], one["headroom"])
            for one in task["levels"]
        ]
        online = task["exit_oracle"]["online"]
        found.append((f"{100 * online['saved']:.1f} % (exits)", online["static"], online["score"], online["headroom"]))
        for saved, static, oracle, over in found:
            ends = f"{100 * over['difference']:+.1f} [{100 * over['low']:+.1f}, {100 * over['high']:+.1f}]"
            expected.append(f"| {task['task']} | {saved} | {100 * static:.1f} | {100 * oracle:.1f} | {ends} |")
    text = (ROOT / "docs/headroom.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("| nano_")] == expected
