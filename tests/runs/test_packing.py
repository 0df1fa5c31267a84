"""Records in one file: a table can be made of them elsewhere, more can be added, and a false file does no harm."""

import json
import lzma
from pathlib import Path

import pytest

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.runs import plan, run
from adaptive_bench.runs.outcome.trained import find_checkpoint
from adaptive_bench.runs.rederive import Rederived, rederive
from adaptive_bench.runs.work.training import carry_out_training
from adaptive_bench.store import archive, packing
from adaptive_bench.store.archive import archived, files_in
from adaptive_bench.store.packing import pack, unpack

pytestmark = pytest.mark.slow

KEY = "0123456789abcdef"


def table(folder):
    return json.loads((folder / "table.json").read_text())


def contents(file):
    return list(files_in(file, str))


@pytest.fixture
def packed(config_of, tmp_path):
    """A finished run's configuration and table, and its records in a file."""
    config = config_of(("dense", "random_skip[trained=true]"))
    folder = run(config).folder
    file = tmp_path / "records.tar.xz"
    file.write_bytes(pack((config.out / "records").iterdir()))
    return config, table(folder), file


def test_unpacked_records_make_the_table_again_and_only_what_is_new_is_trained(packed, tmp_path, monkeypatch):
    config, rows, file = packed
    there = config.model_copy(update={"out": tmp_path / "there"})
    assert unpack(file, there.out) == packing.Unpacked(2, 0) and unpack(file, there.out) == packing.Unpacked(0, 2)
    trained = []
    monkeypatch.setattr(
        "adaptive_bench.runs.work.jobs.carry_out_training",
        lambda training, *rest: trained.append(training.seed) or carry_out_training(training, *rest),
    )

    again = run(there)
    assert again.exit_code == 0 and not trained and table(again.folder) == rows
    assert run(there.model_copy(update={"seeds": (1, 2)})).exit_code == 0 and trained == [2, 2]

    with pytest.raises(EnvironmentProblem, match="without its weights"):
        find_checkpoint(again.folder, "dense")
    assert run(there.model_copy(update={"evaluation": there.evaluation.model_copy(update={"limit": 2})})).exit_code == 0
    assert trained == [2, 2, 1, 1]  # something else is asked of the models: their weights are needed
    assert find_checkpoint(again.folder, "dense").is_dir()


def test_a_table_is_compared_with_what_its_records_say(packed, tmp_path):
    config, rows, file = packed
    assert rederive(config, file, rows) == Rederived(len(rows), ())
    false = [rows[0] | {"score": rows[0]["score"] + 0.01}, *rows[1:-1]]
    found = rederive(config, file, false).differences
    assert len(found) == 2 and "score" in found[0] + found[1] and "not in the table" in found[0] + found[1]
    more = config.model_copy(update={"seeds": (1, 2)})
    with pytest.raises(EnvironmentProblem, match="missing in records"):
        rederive(more, file, rows)


def test_a_training_that_others_start_from_is_made_again_for_them_alone(config_of, tmp_path):
    config = config_of(("dense", "router_tuned_mod"))
    run(config.model_copy(update={"methods": ("dense",)}))
    there = config.model_copy(update={"out": tmp_path / "there"})
    file = tmp_path / "records.tar.xz"
    file.write_bytes(pack((config.out / "records").iterdir()))
    unpack(file, there.out)
    assert [str(training.spec) for training in plan(there).untrained] == ["dense", "router_tuned_mod"]
    assert not plan(there.model_copy(update={"methods": ("dense",)})).untrained


def test_a_file_names_no_machine_has_no_weights_and_is_the_same_every_time(packed):
    config, _, file = packed
    records = list((config.out / "records").iterdir())
    assert file.read_bytes() == pack(reversed(records))
    names, texts = zip(*contents(file), strict=True)
    machine = json.loads((records[0] / "env.json").read_text())["machine"].encode()
    assert not any(b'"machine"' in text or b'"' + machine + b'"' in text for text in texts)
    assert not any(part in name for name in names for part in ("checkpoint", "resume", "log.txt", ".attempts"))


def test_what_is_not_done_is_left_out(config_of, tmp_path):
    config = config_of()
    assert run(config.model_copy(update={"methods": ("dense",)})).exit_code == 0
    (record,) = (config.out / "records").iterdir()
    (sweep,) = (record / "eval").iterdir()
    (sweep / "status.json").write_text('{"state": "failed", "reason": "it burns"}')
    file = tmp_path / "records.tar.xz"
    file.write_bytes(pack([record]))
    assert not any("eval" in name for name, _ in contents(file))
    with pytest.raises(UsageError, match="there is none"):
        pack([tmp_path / "nothing"])


HOSTILE = {
    "a path upwards": ["../escaped.json"],
    "a path upwards in a record": [f"{KEY}/../../escaped.json"],
    "an absolute path": ["/tmp/escaped.json"],
    "another folder": [f"{KEY}/checkpoint/config.json"],
    "another file": [f"{KEY}/run.sh"],
    "code": [f"{KEY}/eval/task-{KEY}/plugin.py"],
    "a folder": [f"{KEY}/eval/"],
    "a long name": [f"{KEY}/eval/{'a' * 5000}-{KEY}/config.json"],
    "other letters": ["０123456789abcdef/config.json"],
    "a timing of another folder": ["time/../../escaped.json"],
    "a timing without seal": [f"time/{KEY}.json"],
    "a good one first": [f"{KEY}/config.json", f"{KEY}/../x.json"],
}


@pytest.mark.parametrize("names", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_name_leads_nowhere(names, tmp_path):
    file, out = tmp_path / "records.tar.xz", tmp_path / "deep" / "out"
    file.write_bytes(archived((name, b"{}") for name in names))
    with pytest.raises(EnvironmentProblem, match=r"records\.tar\.xz"):
        unpack(file, out)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["records.tar.xz"]


@pytest.mark.parametrize("content", [b"", b"no archive", lzma.compress(b"no archive" * 100)])
def test_what_is_no_archive_is_refused(content, tmp_path):
    file = tmp_path / "records.tar.xz"
    file.write_bytes(content)
    with pytest.raises(EnvironmentProblem, match="Fetch it again"):
        unpack(file, tmp_path / "out")


def test_a_file_that_was_cut_off_gives_no_half_record(packed, tmp_path):
    _, _, file = packed
    cut = tmp_path / "cut.tar.xz"
    cut.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(EnvironmentProblem, match="Fetch it again"):
        unpack(cut, tmp_path / "cut")
    assert not list((tmp_path / "cut").rglob("*.json"))


def test_sizes_have_limits(tmp_path, monkeypatch):
    file = tmp_path / "records.tar.xz"
    file.write_bytes(archived((f"{KEY}/{name}.json", b" " * 3000) for name in ("config", "env")))
    for limit, value in (("LARGEST_FILE_BYTES", 2999), ("LARGEST_UNPACKED_BYTES", 5999), ("MOST_FILES", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(archive, limit, value)
            with pytest.raises(EnvironmentProblem, match="too large"):
                unpack(file, tmp_path / limit)
        assert not list(Path(tmp_path / limit).rglob("*.json"))
    assert unpack(file, tmp_path / "out").written == 1


def test_of_an_archive_with_one_false_record_nothing_is_unpacked(packed, tmp_path):
    _, _, file = packed
    files = [
        (name, content.replace(b'"docs": ', b'"docs": 1', 1)) if name.endswith("/0.json") else (name, content)
        for name, content in contents(file)
    ]
    file.write_bytes(archived(files))
    with pytest.raises(EnvironmentProblem, match=r"0\.json changed since it was written"):
        unpack(file, tmp_path / "there")
    assert not list((tmp_path / "there").rglob("*.json"))


def test_an_archive_has_the_records_that_its_run_names(packed, tmp_path):
    config, _, file = packed
    names = sorted(folder.name for folder in (config.out / "records").iterdir())
    assert unpack(file, tmp_path / "all", records=names).written == 2
    with pytest.raises(EnvironmentProblem, match="no record of its run"):
        unpack(file, tmp_path / "one", records=names[:1])
    with pytest.raises(EnvironmentProblem, match="are not in it, the first: 0123456789abcdef"):
        unpack(file, tmp_path / "three", records=[*names, KEY])
