"""Forged entries, with every digest made anew as whoever forges one would: none is taken, and what is said of it names
the file and the value.
"""

import lzma
import re
import shutil

import pytest
from forged_entries import (
    NOW,
    VERSION,
    about,
    answers,
    archive,
    beside,
    both,
    changed,
    config,
    copied,
    edited,
    every_row,
    facts,
    file_of,
    listed,
    measured_two,
    of_run,
    point,
    removed,
    reseal,
    row,
    text_of,
    twice_in,
    verified,
    whole,
    without,
    without_records,
)
from small_archives import members, of_members

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.leaderboard.frame import read_board
from adaptive_bench.leaderboard.site import build
from adaptive_bench.store.digest import sealed

pytestmark = pytest.mark.slow


def twice(members):
    """The first name a second time."""
    first = members["names"].split(b"\n")[0]
    return members | {"names": first + b"\n" + members["names"], "left_out": b"\0" + members["left_out"]}


def flipped(sweep):
    """Every document of the first point scores what it did not."""
    for metric, scores in sweep["points"][0]["scores"].items():
        if isinstance(scores, str):
            sweep["points"][0]["scores"][metric] = scores.translate(str.maketrans("01", "10"))


UNSEALED = listed(lambda values: values.update(seals={}))
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
        about(submitted="2020-01-01T00:00:00+00:00"), "entry.json: submitted 2020-01-01.*before records.tar.xz"),
    "no date": (about(submitted="soon"), "entry.json: submitted is a date with its time in UTC.*got 'soon'"),
    "a device": (about(environments=[{"device_name": "H100"}]), "entry.json: environments.*H100"),
    "an author": (about(about={"authors": "<b>", "licence": "MIT"}), "about: authors"),
    "verified in 2031": (
        verified(verified="2031-01-01T00:00:00+00:00"), "verified.json: verified 2031-01-01.* is in the future"),
    "verified before it was measured": (
        verified(verified="2020-01-01T00:00:00+00:00"), "verified.json: verified 2020-01-01.* before"),
    "verified points that it has not": (verified(points=99, hold=99, documents=300), "verified.json: points 99"),
    "verified documents that it has not": (verified(documents=999), "verified.json: documents 999"),
    "verified more than it is": (verified(hold=3), "verified.json.*hold 3"),
    "verified of another entry": (verified(entry_sha256="0" * 64), "verified.json: entry_sha256 0000"),
    "verified methods that it has not": (
        verified(measured=[point(), point(method="gateskip")]), "verified.json: gateskip on nano_qa_ll"),
    "verified twice": (
        verified(measured=[point(), point()]), "verified.json: dense on nano_qa_ll is named 2 times, in the entry 1"),
    "verified by an earlier form": (verified(schema=4), "verified.json: schema is 5, got 4.*--record"),
    "verified without points": (verified(measured=[]), "verified.json: points 2, named are 0"),
    "verified with nothing equal": (
        verified(equal=0, measured=[point(equal=0), point(method="random_skip", equal=0)]),
        "verified.json: equal 0 of 3 documents, but what holds"),
    "verified with other counts": (verified(equal=5), "verified.json: equal 5, by its points 6"),
    "verified by code that is none": (
        verified(measured=[point(code="newest"), point(method="random_skip")]), "code of a point is 16 hexadecimal"),
    "verified by an older version": (verified(adaptive_bench="0.0.1"), "verified.json: adaptive_bench 0.0.1, but the"),
    "verified on a day alone": (verified(verified="2026-11-26"), "verified.json: verified is a date with its time"),
    "verified more often": (measured_two("differs", points=1, trained=1), "verified.json: points 1, named are 2"),
    "another model": (config(model="llama"), "run.json: model .*, in config.yaml llama"),
    "a model of this package": (
        both(config(model="nano"), of_run(model="nano")),
        r"config.yaml: model nano, by the records of .* another model \(\w{16}\)",
    ),
    "more seeds in the configuration": (config(seeds=[1, 2, 3]), r"run.json: seeds \[1, 2\], in config.yaml"),
    "more seeds everywhere": (both(config(seeds=[1, 2, 3]), of_run(seeds=[1, 2, 3])), "records.tar.xz.*seed 3"),
    "another recipe": (config(train={"steps": 10000}), "config.yaml: train.steps 10000, by the records of .* 3"),
    "a run that failed": (of_run(state="failed"), "run.json: state: .*got 'failed'"),
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
    "no authors": (about(about={"authors": [], "licence": "MIT"}), "about: authors is a list"),
    "authors of no name": (about(about={"authors": [" "], "licence": "MIT"}), "about: authors is a list"),
    "an author twice": (about(about={"authors": ["A", "A"], "licence": "MIT"}), "about: authors is a list .*each once"),
    "records in another order": (
        changed("run.json", lambda found: found.update(records=found["records"][::-1])), "order of records"),
    "no licence": (about(about={"authors": ["A. Name"]}), "about: licence missing"),
    "an empty licence": (about(about={"authors": ["A. Name"], "licence": ""}), "about: licence is a licence"),
    "nobody": (without("entry.json", "about"), "entry.json: about: authors and licence missing"),
    "nothing of anybody": (about(about=None), "entry.json: about: authors and licence missing"),
    "a list of nobody": (about(about=[]), "entry.json: about: keys with values are needed"),
    "no environments": (about(environments=[]), "entry.json: environments is missing or empty"),
    "environments left out": (without("entry.json", "environments"), "entry.json: environments is missing or empty"),
    "environments of nothing": (about(environments=[{}]), "entry.json: environments.0"),
    "an environment more": (
        changed("entry.json", lambda found: found["environments"].append({"torch": "9"})), "environments .*torch.*9"),
    "a key of an environment": (about(environments=[{"machine": "mine"}]), "entry.json: environments.0"),
    "an environment of no text": (about(environments=[{"threads": 1}]), "environments.0.threads: text is needed"),
    "plugins of no list": (about(plugins={"x.py": "0" * 64}), "entry.json: plugins: a list is needed"),
    "plugins of no text": (about(plugins=[{"name": "x.py"}]), "entry.json: plugins.0: text is needed"),
    "a plugin elsewhere": (about(plugins=["../../x.py"]), "plugins.0: the name of a Python file.*got '../../x.py'"),
    "a plugin of another kind": (about(plugins=["x.sh"]), "plugins.0: the name of a Python file.*got 'x.sh'"),
    "a plugin twice": (about(plugins=["x.py", "x.py"]), "entry.json: plugins names x.py twice"),
    "a version that is none": (about(adaptive_bench="latest"), "adaptive_bench: a version such as .*got 'latest'"),
    "a version of no text": (about(adaptive_bench=1.0), "adaptive_bench: a version such as 0.1.0 is needed, got '1.0'"),
    "a newer version": (about(adaptive_bench="99.0"), "adaptive_bench: a version of at most .*got '99.0'"),
    "no version": (without("entry.json", "adaptive_bench"), "entry.json: adaptive_bench is missing"),
    "no day": (without("entry.json", "submitted"), "entry.json: submitted is missing"),
    "a key more": (about(onload="x"), "entry.json: onload is no key of it"),
    "a key twice": (twice_in("entry.json", "schema", 1), "entry.json is not readable JSON .*'schema' twice"),
    "a key of its run twice": (twice_in("run.json", "model", "gpt"), "run.json is not readable JSON .*'model' twice"),
    "a key of its run more": (of_run(onload="x"), "run.json: onload is no key of it"),
    "a record twice": (
        changed("run.json", lambda found: found["records"].append(found["records"][0])), "run.json: records names"),
    "no records named": (without("run.json", "records"), "run.json: records is missing"),
    "a path as record": (of_run(records=["../../etc"]), "run.json: records.0"),
    "a truth as seed": (of_run(seeds=[True, 2]), "run.json: seeds.0: a whole number is needed, got 'True'"),
    **{f"{key} of its run": (of_run(**{key: value}), f"run.json: {key} is no key of it") for key, value in (
        ("schema", 2), ("finished", "2026-01-01T00:00:00+00:00"), ("took_s", 0), ("warnings", []), ("failures", []))},
    "no run": (removed("run.json"), "run.json is missing"),
    "no methods": (removed("methods.json"), "methods.json is missing"),
    "no configuration": (removed("config.yaml"), "config.yaml is missing"),
    "a fact more": (facts(best=True), "methods.json: random_skip: best 'True' is not"),
    "a code that is none": (facts(code="newest"), "methods.json: random_skip: code 'newest' is not"),
    "settings below nothing": (facts(settings_tried=-1), "methods.json: random_skip: settings_tried '-1' is not"),
    "settings of truth": (facts(settings_tried=True), "methods.json: random_skip: settings_tried 'True' is not"),
    "no settings": (facts(settings_tried=None), "methods.json: random_skip: settings_tried is missing"),
    "no code": (facts(code=None), "methods.json: random_skip: code is missing"),
    "fewer seeds everywhere": (
        both(config(seeds=[1]), of_run(seeds=[1])), "records.tar.xz: .*of its seeds, 1, but .*seed 2"),
    "a schema of the methods": (changed("methods.json", lambda found: found.update(schema="x")), "methods.json does"),
    "a method more": (
        changed("methods.json", lambda found: found["methods"].update(mod={})), "methods.json: mod is not in"),
    "a key of the methods more": (changed("methods.json", lambda found: found.update(x=1)), "methods.json does not"),
    "a column": (row(took_s=1), "row .* of table.json: 'took_s' is no column"),
    "a column of nothing": (row(warnings=None), "row .* of table.json: 'warnings' is no column"),
    "fewer documents": (config(evaluation={"limit": 1000}), "records.tar.xz: .*missing"),
    "another calibration": (
        config(evaluation={"calibration_text": "written"}), "records.tar.xz: .*missing"),
    "another temperature": (config(evaluation={"temperature": 0.5}), "records.tar.xz: .*missing"),
    "other bits": (config(evaluation={"quantize": "int8"}), "records.tar.xz: .*missing"),
    "a folder to write to": (config(out="/tmp/x"), "config.yaml: out"),
    "a file that is not named": (
        beside(lambda entry: (entry / "weights.bin").write_bytes(bytes(17_000_000))), "weights.bin is in the folder"),
    "a hidden file": (beside(lambda entry: (entry / ".x").write_text("")), ".x is in the folder, but entry.json"),
    "a folder": (beside(lambda entry: (entry / "records").mkdir()), "records is a folder"),
    "a link": (beside(lambda entry: (entry / "steps.json").symlink_to("/etc/passwd")), "steps.json is a link"),
    "a verified.json that is a link": (
        beside(lambda entry: (entry / "verified.json").symlink_to("entry.json")), "verified.json is a link"),
    "a large verified.json": (
        beside(lambda entry: (entry / "verified.json").write_bytes(b" " * 1_000_001)), "verified.json has at most"),
    "headroom that is none": (file_of("headroom.json", b"{}"), "headroom.json is not what `headroom"),
    "headroom with more": (
        file_of("headroom.json", sealed('{"tasks": [], "model": "/a"}\n').encode()), "headroom.json: model is no key"),
    "steps that are none": (file_of("steps.json", b"[1]"), "does not hold what `adaptive-bench steps`"),
    "a list of records that is none": (file_of("manifest.json.xz", b"x"), "records.tar.xz.*manifest.json.xz"),
    "verified with more": (verified(onload=1), "verified.json: onload is no key of it"),
    "verified by a newer version": (verified(adaptive_bench="99.0"), "verified.json: adaptive_bench: .*got '99.0'"),
    "verified by nothing": (verified(adaptive_bench=None), "verified.json: adaptive_bench: .*got 'None'"),
    "trained again more often": (verified(trained=1), "verified.json: trained 1, by its points 2"),
    "an older version": (about(adaptive_bench="0.0.1"), "entry.json: adaptive_bench 0.0.1, but its environments have"),
    "a version before a release": (
        about(adaptive_bench=f"{VERSION}rc1"), f"entry.json: adaptive_bench {VERSION}rc1, but its environments have"),
    "a version in another form": (about(adaptive_bench=f"v{VERSION}"), "adaptive_bench: a version in its usual form"),
    "a day without its time": (about(submitted=f"{NOW:%Y-%m-%d}"), "entry.json: submitted is a date with its time"),
    "a time of another zone": (
        about(submitted=f"{NOW:%Y-%m-%dT%H:%M:%S}+02:00"), "entry.json: submitted is a date with its time in UTC"),
    "a plugin that nothing needs": (about(plugins=["x.py"]), "entry.json: plugins names x.py, but every method"),
    "another code": (facts(code="0" * 16), "methods.json: random_skip: code 0000000000000000, by the records"),
    "a schema of the facts": (changed("methods.json", lambda found: found.update(schema=2)), "methods.json: schema is"),
    "a comment": (text_of("config.yaml", lambda text: text + "# best\n"), "config.yaml is not as `leaderboard submit"),
    "another form of the same": (
        text_of("config.yaml", lambda text: text.replace("seeds:\n- 1\n- 2\n", "seeds: [1, 2]\n")),
        "config.yaml is not as `leaderboard submit"),
    "a chat template": (config(chat_template=True), "config.yaml: chat_template True, by the records"),
    "another training text": (config(train_on=["nano_math"]), "config.yaml: train_on .*nano_math.*by the records"),
    "another target": (config(train={"target": [0.05]}), "table.json is not what its records say: .*target"),
    "other rates": (
        config(train={"method_learning_rates": {"dense": 0.5}}),
        "config.yaml: train.method_learning_rates 0.5, by the records"),
    "a time of the machine": (config(cell_timeout=9.0), "config.yaml: cell_timeout 9.0 is of a machine"),
    "a key of the run": (
        listed(lambda values: values.update(run_key="0" * 16)), "manifest.json.xz says of run_key: '0000000000000000'"),
    "a key of the list more": (listed(lambda values: values.update(best=True)), "'best' is no key of it"),
    "other levels": (
        listed(lambda values: values["evaluations"][0].update(levels=[0.5])), "manifest.json.xz says of levels in"),
    "another metric": (
        listed(lambda values: values["evaluations"][0].update(metric="f1")), "manifest.json.xz says of metric in"),
    "another base": (
        listed(lambda values: values["trainings"][0].update(base="0" * 16)), "manifest.json.xz says of base in"),
    "an evaluation twice": (
        listed(lambda values: values["evaluations"].append(values["evaluations"][0])),
        "manifest.json.xz says of evaluations: 'a record twice'"),
    "no seals": (listed(lambda values: values.update(seals={})), "manifest.json.xz says of seals of .*: None, by the"),
    "a seal less": (
        listed(lambda values: values["seals"].update({name: text.partition(" ")[2] for name, text in
                                                      list(values["seals"].items())[:1]})),
        "manifest.json.xz says of seals of"),
    "a timing": (
        listed(lambda values: values.update(timings={"0123456789abcdef.json": "0" * 64})),
        "manifest.json.xz says of timings of 0123456789abcdef.json: '0000"),
    "a rate of a step": (
        both(edited("train.jsonl", b'"lr": ', b'"lr": 1', seal=False), UNSEALED),
        "records.tar.xz: .* says learning_rate, warmup_steps and decay, at step 1 a rate of"),
    "a step twice": (
        both(edited("train.jsonl", b'"step": 2', b'"step": 1', seal=False), UNSEALED),
        "records.tar.xz: Each line of a train.jsonl is a step"),
    "a step that is none": (
        both(edited("train.jsonl", b'{"step": 2', b'\xff"step": 2', seal=False), UNSEALED),
        "records.tar.xz: Each line of a train.jsonl is a step .* line 2"),
    "steps that are not there": (
        both(archive(lambda own, _: [(name, b"" if name.endswith("train.jsonl") else text) for name, text in own]),
             UNSEALED),
        "records.tar.xz: .* says steps 3, and train.jsonl 0"),
    "a larger batch": (
        both(edited("data.json", b'"sequences": 6', b'"sequences": 96'), UNSEALED),
        "records.tar.xz: .* says batch_size, in all steps sequences 6, and data.json 96"),
    "tokens of the training text": (
        both(edited("data.json", b'"loss_tokens": ', b'"loss_tokens": 1'), UNSEALED),
        "records.tar.xz: .* says steps, with predicted tokens in train.jsonl"),
    "a method that was measured and is not shown": (
        both(config(methods=["dense"]), of_run(methods=["dense"]),
             changed("methods.json", lambda found: found["methods"].pop("random_skip") and None)),
        "config.yaml: methods and tasks without it, by the records of .* random_skip on nano_qa_ll"),
    "no list of records": (removed("manifest.json.xz"), "manifest.json.xz is missing"),
}  # fmt: skip


def test_there_are_enough_of_them():
    assert len(FORGED) >= 140


@pytest.mark.parametrize(("forge", "why"), FORGED.values(), ids=FORGED)
def test_a_forged_entry_is_refused_with_the_file_and_the_value(entries, tmp_path, forge, why):
    own, other = entries
    entry = shutil.copytree(own, tmp_path / "entry")
    is_sealed = forge(entry, other)
    if not is_sealed and not (entry / "verified.json").exists():
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
