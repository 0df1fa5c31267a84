"""Texts are given back byte for byte, whatever they are, and streams that do not fit together are refused."""

import json
import math
import random
import tracemalloc

import pytest

from adaptive_bench.store import columnar
from adaptive_bench.store.columnar import arranged, part, restored
from adaptive_bench.store.columnar.forms import put_together, taken_apart
from adaptive_bench.store.columnar.literals import Stream, written
from adaptive_bench.store.columnar.prediction import COPY, LAST, NEW, RECENT, TIMES, best_rule, recalled

DOCUMENT = '{"doc": %d, "target": "a \\"b\\" %d", "output": "%s", "scores": {"exact": %s}, "correct": null}\n'
ODD = [
    "",
    "\n",
    "\n\n\r\n",
    "no JSON \x00 \x1f at all",
    '{"a": 1e5, "b": -0.0, "c": 01.50, "d": 1E+3, "e": NaN, "f": -Infinity, "g": 123456789012345678901234567890}',
    '{"a": 0.1, "b": 1e-07, "c": 5e-324, "d": 1.7976931348623157e308, "e": 1e999, "f": 16777217.0, "g": 1e22}',
    '"a string that no quote ends',
    '{"key" : "a\\\\", "\\"": [true, false, null, "\\u00e4", "ä\u2028", "key": 3}',
    b"\xff\xfe invalid \xc3".decode("utf-8", "surrogateescape"),
    '[1,2.5,[3],"4"]',
    "1" * 400,
]


def texts(packed):
    found = []
    for length, lines in restored(packed):
        text = "\n".join(lines)
        assert len(text) == length
        found.append(text)
    return found


@pytest.mark.parametrize("has_rows", [False, True])
def test_whatever_a_text_is_it_comes_back(has_rows):
    for some in (*([text] for text in ODD), ODD, ODD * 3):
        assert texts(arranged([(text, has_rows) for text in some])) == list(some)


def test_random_texts_come_back():
    dice = random.Random(0)
    pieces = ['"', "\\", "\n", " ", ":", ",", "{", "}", "1", "-", ".", "e", "true", "null", "ä", '"x"', '"y": ', "0.25"]
    for _ in range(200):
        some = ["".join(dice.choices(pieces, k=dice.randrange(40))) for _ in range(dice.randrange(1, 6))]
        assert texts(arranged([(text, dice.random() < 0.5) for text in some])) == some
        assert [put_together(*taken_apart(text)) for text in some] == some


def test_documents_that_are_alike_take_little_room():
    files = [
        "".join(
            DOCUMENT % (doc, doc, f"answer {doc if doc % 7 else dial}", "1.0" if doc % 7 else "0.0")
            for doc in range(100)
        )
        for dial in range(20)
    ]
    packed = arranged([(text, True) for text in files])
    assert texts(packed) == files
    assert len(packed["text"]) < sum(map(len, files)) / 20


@pytest.mark.parametrize(
    ("column", "known", "rule"),
    [
        (["1", "2", "1", "2"], {}, LAST),
        (["5.5", "7.5", "8.25", "9.5"], {3: ["5.5", "7.5", "8.25", "9.5"]}, COPY),
        (["11.0", "15.0", "16.5", "19.0"], {3: ["5.5", "7.5", "8.25", "9.5"]}, TIMES),
        (["-0.0", "0.0", "16.5", "19.0"], {3: ["-0.0", "0.0", "8.25", "9.5"]}, TIMES),
        (["1", "2", "1", "2", "2", "1"], {}, RECENT),
    ],
)
def test_what_follows_from_others_is_left_out(column, known, rule):
    lines = [0, 1, 0, 1] if rule == LAST else [0] * len(column)
    found, ranks = best_rule(column, lines, known)
    new = [value for value, rank in zip(column, ranks, strict=True) if rank == NEW]
    assert found.name == rule and len(new) == (2 if rule in (LAST, RECENT) else 0)
    assert recalled(found, ranks, new, lines, known) == column


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([repr(math.sqrt(i + 2)) for i in range(50)], "double"),
        ([str(i * i * 1000003) for i in range(50)], "text"),
        ([f"{i}.50" for i in range(50)], "text"),
        ([*(str(i) for i in range(50)), "1" * 30], "text"),
        ([], "text"),
    ],
)
def test_numbers_stand_in_binary_where_that_gives_them_back(values, kind):
    found, content = written(values)
    stream = Stream(kind, content)
    assert found == kind and stream.take(len(values)) == values
    stream.check_end()


def damage(packed):
    """Streams that do not fit together, one after the other."""
    columns, forms = json.loads(packed["columns"]), json.loads(packed["forms"])
    yield "no forms", {"forms": b""}
    yield "forms of something else", {"forms": b"[1]"}
    yield "a form fewer", {"forms": json.dumps(forms[1:]).encode()}
    yield "no columns", {"columns": b"[]"}
    yield "columns of something else", {"columns": b'[[{"a": 1}]]'}
    yield "a column fewer", {"columns": json.dumps([columns[0][1:], *columns[1:]]).encode()}
    for place, note in enumerate(
        ([99, LAST], [0, "next"], [0, COPY], [0, COPY, 1, 1.0], [0, COPY, 0, 1.0], ["a", LAST])
    ):
        yield f"rule {place}", {"columns": json.dumps([[note, *columns[0][1:]], *columns[1:]]).encode()}
    yield "deep columns", {"columns": b"[" * 100_000}
    yield "lines of no form", {"lines": b"\1\0\0\0\xff\0\0\0"}
    yield "more lines than there are", {"lines": b"\xff\xff\xff\xff\0\0\0\0"}
    yield "half a number", {"lines": packed["lines"][:-1]}
    yield "a file fewer", {"lines": packed["lines"][: len(packed["lines"]) // 2]}
    yield "a rank fewer", {"ranks": packed["ranks"][:-1]}
    yield "a rank more", {"ranks": packed["ranks"] + b"\0"}
    yield "a rank of nothing", {"ranks": b"\2" + packed["ranks"][1:]}
    yield "nothing to recall", {"ranks": b"\0" * len(packed["ranks"])}
    yield "a value fewer", {"text": packed["text"].partition(b"\n")[2]}
    yield "a value more", {"text": packed["text"] + b"1\n"}
    yield "a value that does not end", {"text": packed["text"] + b"1"}
    yield "text that was cut", {"text": packed["text"][:-1]}
    yield "no file", {"lines": b"", "forms": b"[]", "columns": b"[]", "ranks": b"", "text": b""}
    yield "bytes that are no value", {"double": b"\0"}
    yield "numbers that nobody asked for", {"double": b"\0" * 16}


def test_streams_that_do_not_fit_together_are_refused():
    packed = arranged([("".join(DOCUMENT % (doc, dial, doc, "0.5") for doc in range(3)), True) for dial in range(2)])
    cases = dict(damage(packed))
    assert len(cases) > 20
    for name, streams in cases.items():
        with pytest.raises(ValueError, match=r".") as raised:
            texts(packed | streams)
        assert type(raised.value).__name__ in ("ValueError", "JSONDecodeError"), name


def test_quotes_without_end_take_no_time():
    """Each would be looked at up to the end of the line from every quote before it."""
    text = '"' + '\\"' * 200_000
    assert texts(arranged([(text, False)])) == [text]


def test_a_part_has_so_many_values_at_most(monkeypatch):
    packed = arranged([("[1, 2, 3]", False)])
    monkeypatch.setattr(part, "MOST_VALUES", 2)
    with pytest.raises(ValueError, match="at most 2 lines and values"):
        texts(packed)
    assert columnar.MOST_VALUES > 10**6


@pytest.mark.parametrize(
    "streams",
    [
        {"forms": b"[" + b"[]," * 3_000_000 + b"[]]"},
        {"text": b"\n" * 5_000_000},
        {"lines": b"\0" * 20_000_000},
        {"ranks": b"\0" * 5_000_000},
        {"double": b"\0" * 40_000_000},
    ],
    ids=lambda streams: next(iter(streams)),
)
def test_what_would_need_much_memory_is_refused_before_it_is_read(streams):
    packed = arranged([("[1, 2, 3]", False)])
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="at most"):
            texts(packed | streams)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
