"""The file of what was probed: whole, or one method's part of it."""

import json

from adaptive_bench.testing.report import write_matrix


def test_a_part_keeps_what_is_known_of_the_others(tmp_path):
    file = tmp_path / "capabilities.json"
    write_matrix(file, {"mod": {"batch": "yes"}, "calm": {"batch": "yes"}})
    write_matrix(file, {"mod": {"batch": "no"}}, whole=False)
    assert json.loads(file.read_text()) == {"calm": {"batch": "yes"}, "mod": {"batch": "no"}}
    write_matrix(file, {"mod": {"batch": "yes"}})
    assert json.loads(file.read_text()) == {"mod": {"batch": "yes"}}
