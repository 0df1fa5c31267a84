"""What a seal tells of a record's files: changed, missing, added to."""

import pytest

from adaptive_bench.store.digest import sealed
from adaptive_bench.store.files import Files, fold, missing_halves
from adaptive_bench.store.records import DialEvaluationRecord
from adaptive_bench.store.seals import Broken, as_text, broken, from_text, seals_of


@pytest.fixture
def record(tmp_path):
    """A record with a measured point, what work adds to, and a file that is nobody's."""
    for name, text in (
        ("config.json", '{"a": 1}'),
        ("0.15.json", '{"docs": 3}'),
        ("env.json", '{"torch": 1}'),
        ("0.15 (1).json", "{}"),
    ):
        (tmp_path / name).write_text(sealed(text))
    (tmp_path / "0.15.samples.jsonl").write_text("{}\n")
    (tmp_path / "timing.json").write_text("{}")
    return tmp_path


def test_each_file_of_ours_has_a_seal_that_is_read_back(record):
    found = seals_of(Files(record))
    assert set(found) == {"config.json", "0.15.json", "0.15.samples.jsonl", "env.json"}
    assert found["env.json"] == "" and len(found["0.15.json"]) == 16
    assert from_text(as_text(found)) == found
    with pytest.raises(ValueError, match="no seals"):
        from_text("0.15.json=1234")


@pytest.mark.parametrize(
    ("name", "text", "how"),
    [
        ("0.15.json", sealed('{"docs": 4}'), "changed"),
        ("0.15.json", '{"docs": 3}', "changed"),
        ("0.15.json", None, "is missing"),
        ("0.15.samples.jsonl", None, "is missing"),
        ("env.json", None, "is missing"),
        ("env.json", sealed('{"torch": 2}'), None),
    ],
)
def test_what_is_not_as_it_was_is_told(record, name, text, how):
    before = seals_of(Files(record))
    (record / name).unlink() if text is None else (record / name).write_text(text)
    assert list(broken(Files(record), before)) == ([Broken(name, how)] if how else [])


def test_documents_are_read_where_that_is_asked(record):
    before = seals_of(Files(record))
    (record / "0.15.samples.jsonl").write_text("{ }\n")
    assert not list(broken(Files(record), before))
    assert list(broken(Files(record), before, deep=True)) == [Broken("0.15.samples.jsonl", "changed")]


def test_what_is_added_or_folded_breaks_no_seal(record):
    before = seals_of(Files(record))
    (record / "0.3.json").write_text(sealed('{"docs": 3}'))
    fold(record)
    assert (record / "result.json").is_file() and not list(broken(Files(record), before, deep=True))


def test_a_copy_of_a_point_is_no_point(record):
    assert DialEvaluationRecord(record).savings() == [0.15] and missing_halves(Files(record).names()) == []
    (record / "0.15.samples.jsonl").unlink()
    assert missing_halves(Files(record).names()) == ["0.15.samples.jsonl"]
