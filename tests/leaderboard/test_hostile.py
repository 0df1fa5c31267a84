"""Hostile entries, sealed as whoever writes one would: texts that want to act, files that want to lead elsewhere,
values of the wrong kind. None is taken, each refusal names the file and the value or its place, and nothing acts.
"""

import json
import lzma
import re
import shutil
import struct
import tarfile
from itertools import product

import pytest
import yaml
from forged_entries import read, reseal, write
from small_archives import members, of_members
from small_runs import run_config

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.leaderboard.entry import DERIVED
from adaptive_bench.leaderboard.frame import read_board
from adaptive_bench.leaderboard.site import build
from adaptive_bench.leaderboard.submission import submit
from adaptive_bench.runs import run
from adaptive_bench.store.archive import archived, files_in

pytestmark = pytest.mark.slow

TEXTS = {
    "script": "<script>alert(1)</script>",
    "image": "<img src=x onerror=alert(1)>",
    "end of data": "</script><script>alert(1)//",
    "formula": "=cmd|'/C calc'!A0",
    "escape": "a\x1b]0;evil\x07",
    "direction": "a\u202egpj.exe",
    "path": "../../../../etc/passwd",
    "address": "javascript:alert(1)",
    "markdown": "[a](https://evil.example)",
    "template": "{{ 7 * 7 }}",
    "long": "a" * 5000,
    "newline": "a\n| b | c |",
}
PLACES = ("method", "task", "metric", "model", "recipe", "made_with")


@pytest.fixture(scope="module")
def original(model_folder, tmp_path_factory):
    """An entry with table and answers beside its records, as earlier versions submitted them."""
    home = tmp_path_factory.mktemp("run")
    folder = run(run_config(model_folder, home / "out", ("dense", "random_skip"), seeds=(1,))).folder
    entry = submit(folder, home / "entries", with_records=True, about={"authors": ["A. Name"], "licence": "MIT"})
    for name in DERIVED:
        shutil.copy(folder / name, entry / name)
    reseal(entry)
    return entry


def of_json(name, change):
    def attack(entry):
        values = read(entry, name)
        other = change(values)
        write(entry, name, values if other is None else other)

    return attack


def row(**values):
    return of_json("table.json", lambda rows: rows[-1].update(values))


def about(**values):
    return of_json("entry.json", lambda found: found.update(about=found["about"] | values))


def raw(name, content):
    return lambda entry: (entry / name).write_bytes(content)


def config(**values):
    def attack(entry):
        known = yaml.safe_load((entry / "config.yaml").read_text())
        (entry / "config.yaml").write_text(yaml.safe_dump(known | values, sort_keys=False))

    return attack


def packed_by(change):
    """The archive with other members."""

    def attack(entry):
        file = entry / "records.tar.xz"
        file.write_bytes(change(members(file.read_bytes())))

    return attack


def member(name, **header):
    """The archive with one more member, of some kind."""
    return packed_by(lambda known: of_members({name: b""}, **header) if header else of_members(known | {name: b""}))


def file_of(name, content=b"{}"):
    """The archive with one more file."""

    def attack(entry):
        file = entry / "records.tar.xz"
        # A name is of one line; whoever forges an archive writes what he likes.
        stand_in = "".join("~" if letter == "\n" else letter for letter in name)
        known = members(archived([*files_in(file, str), (stand_in, content)]))
        file.write_bytes(of_members(known | {"names": known["names"].replace(stand_in.encode(), name.encode())}))

    return attack


def bomb(entry):
    """60 MB of zeros in a few kB, as a stream."""
    (entry / "records.tar.xz").write_bytes(of_members({"0/text": bytes(60_000_000)}))


def form_bomb(entry):
    """A file of 60 MB: one form of a megabyte, on sixty lines."""
    streams = {"0/forms": json.dumps([[True, "x" * 10**6]]).encode(), "0/columns": b"[[]]"}
    streams["0/lines"] = struct.pack("<61I", 60, *[0] * 60)
    record = read(entry, "run.json")["records"][0]
    names = {"names": f"{record}/train.jsonl".encode(), "left_out": b"\0"}
    (entry / "records.tar.xz").write_bytes(of_members(names | streams))


HOSTILE = {
    **{f"{what} as {key}": (row(**{key: text}), rf"row \d+ of table\.json: {key} has no valid value")
       for key, (what, text) in product(PLACES, TEXTS.items())},
    **{f"{what} as licence": (about(licence=text), "about: licence") for what, text in TEXTS.items()},
    **{f"{what} as link": (about(paper=text), "about: paper") for what, text in TEXTS.items()},
    **{f"{what} as package": (about(package=text), "about: package")
       for what, text in TEXTS.items()},
    **{f"{what} as author": (about(authors=[TEXTS[what]]), "about: authors")
       for what in ("escape", "direction", "long", "newline")},
    "no list of authors": (about(authors="A. Name"), "about: authors.*A. Name"),
    "a thousand authors": (about(authors=["A"] * 1000), "about: authors"),
    "an unknown key": (about(onload="x"), "about: .*onload"),
    "a link with a password": (about(code="https://user:pass@evil.example/x"), "about: code"),
    "a link that ends in markup": (about(code='https://a.example/"><script>'), "about: code"),
    "a number as text": (row(score="0.5"), "table.json: score has no valid value, got the text '0_?5'|score"),
    "a truth as number": (row(seeds=True), "table.json: seeds has no valid value, got bool"),
    "an endless number": (row(level=10**400), "table.json: level has no valid value, got int"),
    "a negative level": (row(level=-0.1), "table.json: level"),
    "a list as score": (row(score=[1]), "table.json: score has no valid value, got list"),
    "an object as status": (row(status={}), "table.json: status"),
    "no number": (raw("table.json", b'[{"score": NaN}]'), "table.json|NaN"),
    "infinity": (raw("table.json", b'[{"score": Infinity}]'), "Infinity|table.json"),
    "nested without end": (raw("table.json", b"[" * 200_000), "table.json is not readable JSON"),
    "no JSON": (raw("table.json", b"\xff\xfe\x00"), "table.json is not readable JSON"),
    "an object as table": (raw("table.json", b'{"rows": []}'), "table.json does not hold"),
    "a list as answers": (raw("answers.json", b"[]"), "answers.json does not hold"),
    "no methods": (raw("methods.json", b'{"methods": []}'), "methods.json does not hold"),
    "a list as run": (raw("run.json", b"[]"), "run.json holds keys and values, got list"),
    "a tag in YAML": (raw("config.yaml", b"model: !!python/object/apply:os.system ['id']\n"), r"config\.yaml"),
    "an alias bomb in YAML": (
        raw("config.yaml", b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nmodel: [*c,*c]\n"), r"config\.yaml|run\.json"),
    "a key twice in YAML": (raw("config.yaml", b"model: a\nmodel: b\n"), r"config\.yaml"),
    "a model elsewhere": (config(model="/etc/passwd"), "run.json: model .*in config.yaml /etc/passwd"),
    "a task elsewhere": (config(tasks=["../../x"]), "run.json: tasks.*in config.yaml"),
    "a file beside the entry": (
        of_json("entry.json", lambda found: found["files"].update({"../../x.json": "0" * 64})), "entry.json names"),
    "a file that is none of an entry": (
        of_json("entry.json", lambda found: found["files"].update({"run.sh": "0" * 64})), "entry.json names 'run.sh'"),
    "no digests": (of_json("entry.json", lambda found: found.update(files={})), "entry.json names every file"),
    "a digest that is none": (
        of_json("entry.json", lambda found: found["files"].update({"run.json": "x"})), "run.json has no digest"),
    "of the future": (of_json("entry.json", lambda found: found.update(schema=99)), "schema 1 to"),
    "a truth as version": (of_json("entry.json", lambda found: found.update(schema=True)), "schema 1 to"),
    "a member above": (member("../../evil.json"), r"records\.tar\.xz.*no stream of records"),
    "an absolute member": (member("/tmp/evil.json"), r"records\.tar\.xz.*no stream of records"),
    "a link": (member("names", type=tarfile.SYMTYPE, linkname="/etc/passwd"), r"records\.tar\.xz.*no stream"),
    "a hard link": (member("names", type=tarfile.LNKTYPE, linkname="/etc/passwd"), r"records\.tar\.xz.*no stream"),
    "a device": (member("names", type=tarfile.CHRTYPE), r"records\.tar\.xz.*no stream"),
    "a file above": (file_of("../../evil.json"), r"records\.tar\.xz.*no file of a record"),
    "an absolute file": (file_of("/tmp/evil.json"), r"records\.tar\.xz.*no file of a record"),
    "a program": (file_of("0123456789abcdef/run.py"), r"records\.tar\.xz.*no file of a record"),
    "a pickle": (file_of("0123456789abcdef/model.pkl"), r"records\.tar\.xz.*no file of a record"),
    **{f"{what} as name": (file_of(f"0123456789abcdef/{text}"), r"records\.tar\.xz.*no (file of a|record of its|name)")
       for what, text in TEXTS.items()},
    "a record that is not the run's": (file_of("0123456789abcdef/env.json"), r"0123456789abcdef is no record"),
    "a bomb": (bomb, r"records\.tar\.xz.*too large"),
    "a bomb of forms": (form_bomb, r"records\.tar\.xz.*too large: 60000059 bytes"),
    "streams of nothing": (
        packed_by(lambda known: of_members(known | {"0/columns": b"{}"})), r"records\.tar\.xz"),
    "bytes behind its end": (
        lambda entry: (entry / "records.tar.xz").write_bytes(
            lzma.compress(lzma.decompress((entry / "records.tar.xz").read_bytes()) + b"#!/bin/sh")),
        r"records\.tar\.xz.*something was added"),
}  # fmt: skip
# The digests of these are what is attacked.
UNSEALED = {"a file beside the entry", "a file that is none of an entry", "no digests", "a digest that is none"}


def test_there_are_enough_of_them():
    assert len(HOSTILE) >= 90


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_entry_is_refused_whole(original, tmp_path, name):
    attack, why = HOSTILE[name]
    entry = shutil.copytree(original, tmp_path / "entries" / "hostile")
    attack(entry)
    if name not in UNSEALED:
        reseal(entry)
    board = read_board([entry / "table.json"])
    assert not board.rows and len(board.refused) == 1
    (said,) = board.refused
    assert said.startswith("hostile is left out: ") and re.search(why, said, re.DOTALL), said
    assert "\x1b" not in said and "\u202e" not in said and "\n" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["entries"]  # nothing was written beside it


def test_the_page_of_all_of_them_holds_none_of_their_texts_and_a_strict_build_fails(original, tmp_path):
    shutil.copytree(original, tmp_path / "good")
    for number, name in enumerate(list(HOSTILE)[::4]):
        entry = shutil.copytree(original, tmp_path / f"hostile{number}")
        HOSTILE[name][0](entry)
        if name not in UNSEALED:
            reseal(entry)
    tables = [path / "table.json" for path in sorted(tmp_path.iterdir())]
    with pytest.raises(EnvironmentProblem, match=rf"{len(tables) - 1} of them are refused: hostile0 is left out"):
        build(tables, tmp_path / "site", strict=True)
    for path in (path for path in (tmp_path / "site").rglob("*") if path.suffix in (".html", ".js", ".md")):
        text = path.read_text()
        assert "<script>alert" not in text and "<img src=x" not in text and "\x1b" not in text
        assert 'href="javascript' not in text and (path.suffix != ".md" or "](https" not in text)
