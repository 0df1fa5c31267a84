"""Forged entries, with every digest made anew as whoever forges one would: none is taken, and what is said of it names
the file and the value.
"""

import json
import lzma
import re
import shutil
from datetime import UTC, datetime

import pytest
import yaml
from small_archives import members, of_members
from small_runs import run_config

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.leaderboard import evidence, provenance
from adaptive_bench.leaderboard import verified as verified_now
from adaptive_bench.leaderboard.entry import DERIVED, digest_of
from adaptive_bench.leaderboard.evidence import (
    REDERIVED,
    REPRODUCED,
    REPRODUCED_EARLIER,
    REPRODUCED_NOW,
    SELF_REPORTED,
)
from adaptive_bench.leaderboard.frame import read_board
from adaptive_bench.leaderboard.page import render
from adaptive_bench.leaderboard.provenance import OTHER_CODE, method_facts_of
from adaptive_bench.leaderboard.rows import Rejected
from adaptive_bench.leaderboard.site import build
from adaptive_bench.leaderboard.submission import submit
from adaptive_bench.runs import run
from adaptive_bench.source import code_of
from adaptive_bench.store.archive import archived, files_in
from adaptive_bench.store.digest import sealed

ABOUT = {"authors": ["A. Name"], "licence": "CC-BY-4.0"}
NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
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
    names = sorted(path.name for path in entry.iterdir() if path.name not in ("entry.json", "verified.json"))
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
        (entry / "config.yaml").write_text(yaml.safe_dump(found))

    return forge


def verified(**values):
    """Written after the entry is sealed, as it names the digest of what it is of."""
    known = {"schema": 2, "adaptive_bench": "0.1.0", "points": 2, "trained": 2, "hold": 2, "alike": 0}
    known |= {"documents": 6, "equal": 6, "verified": NOW.isoformat()}

    def forge(entry, _):
        reseal(entry)
        digest = digest_of((entry / "entry.json").read_bytes())
        write(entry, "verified.json", known | {"entry_sha256": digest} | values)

    return forge


def measured_twice(verdict, points=2):
    point = {"method": "dense", "semantics": "bench", "task": "nano_qa_ll", "verdict": "holds"}
    how = {"points": points, "trained": 0, "hold": 1 + (verdict == "holds")}
    return verified(schema=4, measured=[point, point | {"verdict": verdict}], **how)


def archive(change):
    """A forgery of the members of the archive: names and contents."""

    def forge(entry, other):
        (entry / "records.tar.xz").write_bytes(archived(change(members_of(entry), members_of(other))))

    return forge


def members_of(entry):
    return sorted(files_in(entry / "records.tar.xz", str))


def edited(end, old, new, *, seal=True):
    """A forgery of one file of the records, sealed anew."""

    def change(members, _):
        place = next(place for place, (name, content) in enumerate(members) if name.endswith(end) and old in content)
        name, content = members[place]
        content = content.replace(old, new, 1)
        if seal:
            body = re.sub(rb',\n  "content_sha256": "[0-9a-f]{64}"\n', b"\n", content).decode()
            content = sealed(body).encode()
        members[place] = (name, content)
        return members

    return archive(change)


def whole(change):
    def forge(entry, other):
        content = change((entry / "records.tar.xz").read_bytes(), (other / "records.tar.xz").read_bytes())
        (entry / "records.tar.xz").write_bytes(content)

    return forge


def twice(members):
    """The first name a second time."""
    first = members["names"].split(b"\n")[0]
    return members | {"names": first + b"\n" + members["names"], "left_out": b"\0" + members["left_out"]}


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


def flipped(sweep):
    """Every document of the first point scores what it did not."""
    for metric, scores in sweep["points"][0]["scores"].items():
        if isinstance(scores, str):
            sweep["points"][0]["scores"][metric] = scores.translate(str.maketrans("01", "10"))


FORGED = {
    "a score": (row(score=0.97), "table.json.*score 0.97, by the records"),
    "a score of dense": (row(0, score=0.971), "table.json.*score 0.971, by the records"),
    "all scores": (every_row(score=0.97, low=None, high=None), "table.json.*by the records"),
    "an interval": (row(low=0.0, high=1.0), "table.json.*(low|high)"),
    "seeds": (row(seeds=5), "table.json.*seeds 5, by the records 2"),
    "all seeds": (every_row(seeds=5), "table.json.*seeds 5, by the records 2"),
    "documents": (row(documents=1000), "table.json.*documents 1000, by the records 3"),
    "a saving": (row(saved_net=0.5), "table.json.*saved_net 0.5, by the records"),
    "saved tokens": (row(saved_tokens=0.5), "table.json.*saved_tokens 0.5, by the records"),
    "a claimed saving": (row(claimed=0.9), "table.json.*claimed 0.9, by the records"),
    "a status": (row(-1, status="inert"), "table.json.*status inert, by the records"),
    "parameters": (every_row(parameters_added=7), "table.json.*parameters_added 7, by the records"),
    "training tokens": (row(train_tokens=1), "table.json.*train_tokens 1, by the records"),
    "the model": (every_row(model="llama-3.1-8b"), "table.json.*model llama-3.1-8b, by the records"),
    "the weights": (every_row(backbone="0" * 16), "table.json.*backbone 0000000000000000, by the records"),
    "the recipe": (every_row(recipe="steps 10000"), "table.json.*recipe steps 10000, by the records"),
    "a method": (row(method="gateskip"), "table.json.*gateskip"),
    "a task": (every_row(task="gsm8k"), "table.json.*gsm8k"),
    "a level": (row(level=0.4), "table.json.*0.4"),
    "a row that is not there": (
        changed("table.json", lambda rows: rows.append(rows[-1] | {"level": 0.4})), "table.json.*0.4"),
    "a row that is gone": (changed("table.json", lambda rows: rows[:-1]), "table.json.*not in the table"),
    "a row twice": (
        changed("table.json", lambda rows: rows.append(rows[-1] | {"score": 0.97})), "table.json.*and 0.97"),
    "no number": (row(score="0.97"), "table.json.*score has no valid value"),
    "beyond its range": (row(score=1.7, low=None, high=None), "table.json.*got 1.7"),
    "another table": (copied("table.json"), "table.json"),
    "answers": (answers(flipped), "answers.json: dense.*scores.*by the records"),
    "a saving in the answers": (
        answers(lambda sweep: sweep["points"][0]["saved"].update(net=0.5)), "answers.json: dense.*saved.net 0.5"),
    "a seed of the answers": (answers(lambda sweep: sweep.update(seed=9)), "answers.json: .*, 1: is not in it"),
    "answers twice": (
        changed("answers.json", lambda values: values["sweeps"].append(values["sweeps"][0])), "answers.json.*twice"),
    "other answers": (copied("answers.json"), "answers.json"),
    "a class": (facts(causality="C2"), "methods.json: random_skip: causality C2, by the conformance suite C0"),
    "no class": (facts(causality=None), "methods.json: random_skip: causality None"),
    "a KV policy": (facts(kv_policy="defer"), "methods.json: random_skip: kv_policy defer, by the records"),
    "an executor": (facts(executor="masked"), "methods.json: random_skip: executor masked"),
    "settings tried": (
        changed("methods.json", lambda found: found["methods"]["dense"].update(settings_tried=0)),
        "methods.json: dense: settings_tried 0, by the records 1"),
    "no facts": (changed("methods.json", lambda found: found["methods"].pop("dense") and None), "methods.json: dense"),
    "submitted in 2031": (about(submitted="2031-01-01T00:00:00+00:00"), "entry.json: submitted 2031.*future"),
    "submitted before it was measured": (
        about(submitted="2020-01-01T00:00:00+00:00"), "entry.json: submitted 2020-01-01.*before run.json: finished"),
    "no date": (about(submitted="soon"), "entry.json: submitted is a date, got 'soon'"),
    "finished in 2031": (of_run(finished="2031-01-01T00:00:00+00:00"), "run.json: finished 2031.*future"),
    "a device": (about(environments=[{"device_name": "H100"}]), "entry.json: environments.*H100"),
    "an author": (about(about={"authors": "<b>"}), "about: authors"),
    "verified in 2031": (verified(verified="2031-01-01"), "verified.json: verified 2031-01-01 is in the future"),
    "verified before it was measured": (verified(verified="2020-01-01"), "verified.json: verified 2020-01-01"),
    "verified points that it has not": (verified(points=99, hold=99, documents=300), "verified.json: points 99"),
    "verified documents that it has not": (verified(documents=999), "verified.json: documents 999"),
    "verified more than it is": (verified(hold=3), "verified.json.*hold 3"),
    "verified of another entry": (verified(entry_sha256="0" * 64), "verified.json: entry_sha256 0000"),
    "verified methods that it has not": (
        verified(schema=3, points=1, hold=1, trained=1, documents=3, equal=3, measured=[
            {"method": "gateskip", "semantics": "bench", "task": "nano_qa_ll", "verdict": "holds"}]),
        "verified.json: gateskip on nano_qa_ll"),
    "verified more often": (measured_twice("differs", points=1), "verified.json: points 1, named are 2"),
    "another model": (config(model="llama"), "run.json: model .*, in config.yaml llama"),
    "more seeds in the configuration": (config(seeds=[1, 2, 3]), r"run.json: seeds \[1, 2\], in config.yaml"),
    "more seeds everywhere": (both(config(seeds=[1, 2, 3]), of_run(seeds=[1, 2, 3])), "records.tar.xz.*seed 3"),
    "another recipe": (config(train={"steps": 10000}), "config.yaml: train.steps 10000, by the records of .* 3"),
    "a run that failed": (of_run(state="failed"), "run.json: state 'failed'"),
    "records that it has not": (of_run(records=["0" * 16]), "records.tar.xz.*is no record of its run"),
    "another archive": (whole(lambda own, other: other), "records.tar.xz.*is no record of its run"),
    "an archive that was cut": (whole(lambda own, _: own[:-40]), "records.tar.xz"),
    "an archive that was cut between files": (
        whole(lambda own, _: lzma.compress(lzma.decompress(own)[:10240])), "records.tar.xz"),
    "an archive that was added to": (
        whole(lambda own, _: lzma.compress(lzma.decompress(own) + b"more")), "records.tar.xz.*was added"),
    "no archive": (whole(lambda own, _: b"something else"), "records.tar.xz"),
    "a file twice": (whole(lambda own, _: of_members(twice(members(own)))), "records.tar.xz.*is in it twice"),
    "a file that is gone": (archive(lambda own, _: own[:-1]), "records.tar.xz"),
    "records of another run as well": (archive(lambda own, other: own + other), "records.tar.xz.*no record of its run"),
    "a path upwards": (archive(lambda own, _: [*own, ("../escaped.json", b"{}")]), "records.tar.xz.*no file of a"),
    "a score of a point": (edited("0.json", b'"scores": {', b'"scores": {"more": 1.0, '), "records.tar.xz"),
    "a document of a point": (edited("samples.jsonl", b'"doc": 0', b'"doc": 9', seal=False), "records.tar.xz"),
    "counts of a point": (edited("0.3.json", b'"docs": 3', b'"docs": 4'), "records.tar.xz"),
    "a seed of a record": (edited("/config.json", b'"seed": 1', b'"seed": 4'), "records.tar.xz"),
    "a score without records": (without_records(row(0, score=0.97)), "table.json: row 0.*score 0.97, by answers.json"),
    "seeds without records": (without_records(row(0, seeds=5)), "table.json: row 0.*seeds 5, in answers.json 2"),
    "a class without records": (without_records(facts(causality="C2")), "methods.json: random_skip: causality C2"),
}  # fmt: skip


def test_there_are_enough_of_them():
    assert len(FORGED) >= 40


@pytest.mark.parametrize(("forge", "why"), FORGED.values(), ids=FORGED)
def test_a_forged_entry_is_refused_with_the_file_and_the_value(entries, tmp_path, forge, why):
    own, other = entries
    entry = shutil.copytree(own, tmp_path / "entry")
    forge(entry, other)
    if not (entry / "verified.json").exists():
        reseal(entry)
    board = read_board([entry / "table.json"])
    assert not board.rows and len(board.refused) == 1
    assert board.refused[0].startswith("entry is left out: ") and re.search(why, board.refused[0], re.DOTALL)


def test_what_was_not_resealed_is_refused(entries, tmp_path):
    for name in ("table.json", "answers.json", "methods.json", "run.json", "config.yaml", "records.tar.xz"):
        entry = shutil.copytree(entries[0], tmp_path / name)
        (entry / name).write_bytes((entry / name).read_bytes() + b" ")
        (said,) = read_board([entry / "table.json"]).refused
        assert f"{name} is not what was submitted" in said


def test_the_rest_is_built_and_a_strict_build_fails(entries, tmp_path):
    for name in ("good", "forged"):
        shutil.copytree(entries[0], tmp_path / name)
    row(score=0.97)(tmp_path / "forged", None)
    reseal(tmp_path / "forged")
    tables = [tmp_path / name / "table.json" for name in ("good", "forged")]
    assert any("score 0.97" in text for text in build(tables, tmp_path / "site"))
    shutil.rmtree(tmp_path / "site")
    with pytest.raises(EnvironmentProblem, match=r"1 of them are refused: forged is left out: table\.json"):
        build(tables, tmp_path / "site", strict=True)
    assert (tmp_path / "site" / "index.html").is_file()
    assert not any("refused" in text for text in build(tables[:1], tmp_path / "site", strict=True))


def test_states_say_what_stands_behind_a_row(entries, tmp_path):
    own, _ = entries
    (state,) = states(own)
    assert state == (REDERIVED, True, None)
    bare = shutil.copytree(own, tmp_path / "bare")
    (bare / "records.tar.xz").unlink()
    reseal(bare)
    assert states(bare) == {(SELF_REPORTED, True, None)}
    again = shutil.copytree(own, tmp_path / "again")
    points = [{"method": "dense", "semantics": "bench", "task": "nano_qa_ll", "verdict": "holds", "trained": True}]
    verified(schema=3, points=1, hold=1, trained=1, documents=3, equal=3, measured=points)(again, None)
    board = read_board([again / "table.json"])
    found = {line["method"]: line["evidence"] for line in board.lines}
    assert found == {"dense": REPRODUCED, "random_skip": REDERIVED}
    (evidence,) = board.evidence.values()
    assert evidence.again.trained == 1 and "1 of 1 points measured again hold" in evidence.said()


def test_what_verify_records_has_a_point_for_each_saving_a_method_was_trained_towards(entries, tmp_path):
    """As `verify` measures them: one of each sweep of the entry's first seed."""
    entry = shutil.copytree(entries[0], tmp_path / "entry")
    rows, answers = read(entry, "table.json"), read(entry, "answers.json")
    of_first = [sweep for sweep in answers["sweeps"] if sweep["seed"] == 1]
    answers = {"sweeps": [sweep | {"target": target} for sweep in of_first for target in (0.1, 0.2)]}
    point = {"verdict": "holds", "trained": True, "documents": 3, "equal": 3}
    places = ("method", "semantics", "task")
    measured = [point | {key: sweep[key] for key in places} for sweep in answers["sweeps"]]
    verified_now.recorder(entry)(measured)
    assert verified_now.of_entry(entry, answers, rows).points == 2 * len(of_first)
    verified_now.recorder(entry)([*measured, measured[0]])
    with pytest.raises(Rejected, match=f"points {2 * len(of_first) + 1}, in the entry {2 * len(of_first)}"):
        verified_now.of_entry(entry, answers, rows)


@pytest.mark.parametrize(("verdict", "state"), [("holds", REPRODUCED), ("differs", REDERIVED)])
def test_a_row_is_reproduced_where_no_point_of_it_differs(entries, tmp_path, verdict, state):
    entry = shutil.copytree(entries[0], tmp_path / "entry")
    measured_twice(verdict)(entry, None)
    found = {line["method"]: line["evidence"] for line in read_board([entry / "table.json"]).lines}
    assert found["dense"] == state


@pytest.mark.parametrize(
    ("by", "state"), [(None, REPRODUCED_EARLIER), ("1" * 16, REPRODUCED_EARLIER), ("2" * 16, REPRODUCED_NOW)]
)
def test_what_earlier_code_measured_again_is_not_called_reproduced(entries, tmp_path, monkeypatch, by, state):
    """The code of `dense` changed since its row was measured, and `by` is the one that measured it again."""
    monkeypatch.setattr(evidence, "code_of", lambda method: "2" * 16 if method == "dense" else code_of(method))
    monkeypatch.setattr(provenance, "code_of", evidence.code_of)
    entry = shutil.copytree(entries[0], tmp_path / "again")
    point = {"semantics": "bench", "task": "nano_qa_ll", "verdict": "holds", "trained": True}
    points = [point | {"method": "dense", "code": by}, point | {"method": "random_skip", "code": "1" * 16}]
    verified(schema=4, points=2, hold=2, trained=2, documents=6, equal=6, measured=points)(entry, None)
    board = read_board([entry / "table.json"])
    found = {line["method"]: line["evidence"] for line in board.lines}
    assert found == {"dense": state, "random_skip": REPRODUCED}
    (one,) = board.evidence.values()
    assert ("since then the code of 1 of its 2 methods has changed" in one.said()) is (state == REPRODUCED_EARLIER)
    page = render(board, "net")
    assert f"verified {NOW:%Y-%m-%d}" in page and (", in part by earlier code" in page) is (state == REPRODUCED_EARLIER)
    old = [method for method in method_facts_of([entry]).items() if method[1]["code"] == OTHER_CODE]
    assert [name for name, _ in old] == ["dense"]


def states(entry):
    board = read_board([entry / "table.json"])
    assert not board.refused
    return {(line["evidence"], line["checked"], line["external"]) for line in board.lines}


def test_a_method_whose_plugin_is_not_here_stays_unchecked_and_is_not_called_old(entries, tmp_path, monkeypatch):
    from adaptive_bench import registry

    entry = shutil.copytree(entries[0], tmp_path / "entry")
    names = registry.names
    monkeypatch.setattr(registry, "names", lambda group: [name for name in names(group) if name != "random_skip"])
    board = read_board([entry / "table.json"])
    by_method = {line["method"]: line for line in board.lines}
    assert by_method["random_skip"]["evidence"] == REDERIVED
    assert by_method["random_skip"]["external"].endswith("not here") and by_method["dense"]["external"] is None
    assert method_facts_of([entry])["random_skip"]["code"] != OTHER_CODE
