"""Data files that are missing, cut off, wrongly encoded or of another kind: told with file and line."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.data import read_lines
from adaptive_bench.errors import EnvironmentProblem

ROW = b'{"question": "Caf\xc3\xa9?", "answer": "4"}\n'


def _file(folder, content, name="test.jsonl"):
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ROW + b'{"question": "cut o', r"test.jsonl cannot be read in line 2: Unterminated string.* character 14"),
        (
            ROW + ROW + b'{"question": "Caf\xe9?"}\n',
            r"UTF-8, but .*jsonl cannot be read in line 3: byte 18 .*0xe9",
        ),
        (ROW + b"[1, 2]\n", r"line 2 of .*test.jsonl is of the kind list"),
        (ROW + b'\n{"question": "Why?"}\n', r"has the fields question, answer, but line 3 lacks answer"),
        (b"", r"test.jsonl is empty"),
    ],
)
def test_a_bad_line_is_named(content, message, tmp_path):
    with pytest.raises(EnvironmentProblem, match=message):
        read_lines(_file(tmp_path, content), ("question", "answer"))


def test_without_given_fields_every_row_has_those_of_the_first(tmp_path):
    with pytest.raises(EnvironmentProblem, match="line 2 lacks b"):
        read_lines(_file(tmp_path, b'{"a": 1, "b": 2}\n{"a": 1}\n'))


def test_a_byte_order_mark_is_none_of_the_data(tmp_path):
    assert read_lines(_file(tmp_path, b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n')) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("cut", [5, 30, 60])
def test_a_compressed_file_that_is_cut_off_is_told(cut, tmp_path):
    whole = gzip.compress(b"".join(b'{"n": %d}\n' % n for n in range(1000)))
    with pytest.raises(EnvironmentProblem, match=r"train.jsonl.gz cannot be read after line \d+: .*cut off"):
        read_lines(_file(tmp_path, whole[:cut], "train.jsonl.gz"))
    with pytest.raises(EnvironmentProblem, match=r"cannot be read after line 0: Not a gzipped file"):
        read_lines(_file(tmp_path, ROW, "train.jsonl.gz"))


@given(rows=st.lists(st.fixed_dictionaries({"a": st.text(), "b": st.integers() | st.none()}), min_size=1))
def test_what_was_written_is_read(rows, tmp_path_factory):
    text = "".join(json.dumps(row, ensure_ascii=number % 2 == 0) + "\n" for number, row in enumerate(rows))
    folder = tmp_path_factory.mktemp("rows")
    content = text.encode("utf-8", errors="surrogatepass")
    if content.decode("utf-8", errors="ignore") != text:
        return  # a lone surrogate cannot be written as UTF-8
    assert read_lines(_file(folder, content)) == rows
    assert read_lines(_file(folder, gzip.compress(content), "test.jsonl.gz")) == rows
