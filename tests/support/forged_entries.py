"""What a forger does to an entry, with every digest made anew as whoever forges one would."""

import json
import lzma
import re
import shutil
from datetime import UTC, datetime
from importlib.metadata import version

import pytest
import yaml
from small_runs import run_config

from adaptive_bench.leaderboard.entry import DERIVED, digest_of
from adaptive_bench.leaderboard.frame import read_board
from adaptive_bench.leaderboard.submission import submit
from adaptive_bench.runs import run
from adaptive_bench.store.archive import archived, files_in
from adaptive_bench.store.digest import sealed, unsealed

VERSION = version("adaptive-bench")
ABOUT = {"authors": ["A. Name"], "licence": "CC-BY-4.0"}
NOW = datetime.now(UTC)


@pytest.fixture(scope="session")
def entries(model_folder, tmp_path_factory):
    """Two entries of seconds, each with table and answers beside its records, as earlier versions submitted them."""
    found = []
    for seeds in ((1, 2), (3,)):
        home = tmp_path_factory.mktemp("run")
        folder = run(run_config(model_folder, home / "out", ("dense", "random_skip"), seeds=seeds)).folder
        entry = submit(folder, home / "entries", with_records=True, about=ABOUT)
        assert not any((entry / name).exists() for name in DERIVED)
        board = read_board([entry / "table.json"])
        assert board.rows and not board.refused
        for name in DERIVED:
            shutil.copy(folder / name, entry / name)
        reseal(entry)
        found.append(entry)
    return found


def reseal(entry):
    about = read(entry, "entry.json")
    names = sorted(
        path.name for path in entry.iterdir() if path.is_file() and path.name not in ("entry.json", "verified.json")
    )
    about["files"] = {name: digest_of((entry / name).read_bytes()) for name in names}
    write(entry, "entry.json", about)


def read(entry, name):
    return json.loads((entry / name).read_text())


def write(entry, name, values):
    (entry / name).write_text(json.dumps(values))


def changed(name, change):
    """A forgery of one JSON file."""

    def forge(entry, _):
        values = read(entry, name)
        other = change(values)
        write(entry, name, values if other is None else other)

    return forge


def row(number=-1, **values):
    return changed("table.json", lambda rows: rows[number].update(values))


def every_row(**values):
    return changed("table.json", lambda rows: [one | values for one in rows])


def answers(change):
    return changed("answers.json", lambda values: change(values["sweeps"][0]))


def facts(**values):
    return changed("methods.json", lambda found: found["methods"]["random_skip"].update(values))


def about(**values):
    return changed("entry.json", lambda found: found.update(values))


def of_run(**values):
    return changed("run.json", lambda found: found.update(values))


def config(**values):
    def forge(entry, _):
        found = yaml.safe_load((entry / "config.yaml").read_text())
        for key, value in values.items():
            found[key] = found[key] | value if isinstance(value, dict) else value
        (entry / "config.yaml").write_text(yaml.safe_dump(found, sort_keys=False))

    return forge


def verified(**values):
    """Two points that hold, but for some values. Written after the entry is sealed, as it names the digest of what it
    is of.
    """
    known = {"schema": 5, "adaptive_bench": VERSION, "points": 2, "trained": 2, "hold": 2, "alike": 0}
    known |= {"documents": 6, "equal": 6}
    known |= {"measured": [point(), point(method="random_skip")]}

    def forge(entry, _):
        reseal(entry)
        # In a long session the entries are made long after this module was read.
        known["verified"] = datetime.now(UTC).isoformat(timespec="seconds")
        digest = digest_of((entry / "entry.json").read_bytes())
        write(entry, "verified.json", known | {"entry_sha256": digest} | values)

    return forge


def point(**values):
    """One that was measured again, as `verified.json` names it."""
    known = {"method": "dense", "semantics": "bench", "task": "nano_qa_ll", "verdict": "holds", "trained": True}
    return known | {"code": "0" * 16, "documents": 3, "equal": 3} | values


def measured_two(verdict, **values):
    measured = [point(method="random_skip"), point(verdict=verdict)]
    return verified(hold=1 + (verdict == "holds"), measured=measured, **values)


def listed(change):
    """A forgery of the list of records."""

    def forge(entry, _):
        file = entry / "manifest.json.xz"
        values = unsealed(lzma.decompress(file.read_bytes()))
        change(values)
        file.write_bytes(lzma.compress(sealed(json.dumps(values, indent=2)).encode()))

    return forge


def text_of(name, change):
    """A forgery of a file's text."""

    def forge(entry, _):
        (entry / name).write_text(change((entry / name).read_text()))

    return forge


def archive(change):
    """A forgery of the members of the archive: names and contents."""

    def forge(entry, other):
        (entry / "records.tar.xz").write_bytes(archived(change(members_of(entry), members_of(other))))

    return forge


def members_of(entry):
    return sorted(files_in(entry / "records.tar.xz", str))


def sealed_again(content):
    return sealed(re.sub(rb',\n  "content_sha256": "[0-9a-f]{64}"\n', b"\n", content).decode()).encode()


def edited(end, old, new, *, seal=True):
    """A forgery of one file of the records, sealed anew."""

    def change(members, _):
        place = next(place for place, (name, content) in enumerate(members) if name.endswith(end) and old in content)
        name, content = members[place]
        content = content.replace(old, new, 1)
        members[place] = (name, sealed_again(content) if seal else content)
        return members

    return archive(change)


def whole(change):
    def forge(entry, other):
        content = change((entry / "records.tar.xz").read_bytes(), (other / "records.tar.xz").read_bytes())
        (entry / "records.tar.xz").write_bytes(content)

    return forge


def without_records(*forgeries):
    """The same of an entry that claims to have no records."""

    def forge(entry, other):
        (entry / "records.tar.xz").unlink()
        for one in forgeries:
            one(entry, other)

    return forge


def both(*forgeries):
    def forge(entry, other):
        for one in forgeries:
            one(entry, other)

    return forge


def copied(name):
    return lambda entry, other: shutil.copy(other / name, entry / name)


def without(name, *keys):
    """A JSON file that lacks some keys."""
    return changed(name, lambda found: {key: value for key, value in found.items() if key not in keys})


def twice_in(name, key, value):
    """A JSON file with a key a second time, first."""

    def forge(entry, _):
        text = (entry / name).read_text()
        (entry / name).write_text(f"{{{json.dumps(key)}: {json.dumps(value)}, {text.lstrip()[1:]}")
        return name == "entry.json"  # sealed anew it would have the key once

    return forge


def removed(name):
    return lambda entry, _: (entry / name).unlink()


def beside(put):
    """Something in the folder that `entry.json` does not name; it is put there after all else."""

    def forge(entry, _):
        reseal(entry)
        put(entry)
        return True

    return forge


def file_of(name, content):
    """A file that `entry.json` names."""

    def forge(entry, _):
        (entry / name).write_bytes(content)

    return forge
