"""What a finished run ended with: nothing of it is changed, swapped or missing without a word of whoever reads it."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from finished_run import HELD_TO, change, read, table_only

from adaptive_bench.cli.diff import compared, diff
from adaptive_bench.cli.run_list import Wanted, runs_in
from adaptive_bench.cli.samples import documents
from adaptive_bench.cli.show import _run as shown
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.leaderboard import provenance
from adaptive_bench.leaderboard.frame import read_board
from adaptive_bench.leaderboard.provenance import runs_of
from adaptive_bench.progress import Line, Reporter
from adaptive_bench.runs import plan, run
from adaptive_bench.store import manifest, timings
from adaptive_bench.store.atomic import write_sealed
from adaptive_bench.store.overview import pieces
from adaptive_bench.store.results import read_table
from adaptive_bench.store.run_files import key_in, run_command


class Lines(Reporter):
    """Keeps what is said."""

    def __init__(self):
        self.said = []

    def emit(self, event):
        if isinstance(event, Line):
            self.said.append(event.text)


READERS = {
    "samples": lambda config, folder: read(folder),
    "diff": lambda config, folder: list(compared(folder, folder)),
    "the table alone": lambda config, folder: table_only(config),
}


def untimed(rows):
    return [row | {"seconds": None} for row in rows]


def test_nothing_is_said_of_a_run_that_is_as_it_ended(finished):
    config, folder, _ = finished
    listed = manifest.read(folder)
    assert listed.run_key == key_in(folder) and set(listed.seals) == set(listed.records)
    assert not list(listed.broken(deep=True)) and "Not as the run left it" not in shown(folder)
    assert {piece.state for piece in pieces(config.out)} == {"done"}
    assert [one["state"] for one in runs_in(config.out, Wanted())] == ["done"]
    before = (folder / manifest.FILE).read_bytes()
    told = Lines()
    assert run(config, told, jobs=1).rows and not any("not what they were" in line for line in told.said)
    assert (folder / manifest.FILE).read_bytes() == before and not read_board([folder / "table.json"]).problems


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("gone", ["0.3.json", "0.3.samples.jsonl"])
def test_half_a_point_that_is_gone_is_missed(finished, reader, gone):
    config, folder, sweep = finished
    (sweep / gone).unlink()
    with pytest.raises(EnvironmentProblem, match=rf"{HELD_TO}|not replaced by a poorer"):
        READERS[reader](config, folder)
    damaged = [piece for piece in pieces(config.out) if piece.state == "damaged"]
    assert [piece.folder for piece in damaged] == [sweep] and gone in damaged[0].reason
    assert gone in shown(folder) and gone in " ".join(read_board([folder / "table.json"]).problems)


@pytest.mark.parametrize("reader", READERS)
def test_a_point_made_anew_by_another_run_is_noticed_until_the_run_takes_it(finished, reader):
    config, folder, sweep = finished
    change(sweep / "0.3.json", wall_s=9.0)
    with pytest.raises(EnvironmentProblem, match=HELD_TO):
        READERS[reader](config, folder)
    (changed,) = (piece for piece in pieces(config.out) if piece.state == "changed")
    assert changed.folder == sweep and folder.name in changed.reason
    told = Lines()
    assert run(config, told, jobs=1).exit_code == 0
    assert any("0.3.json changed" in line and "made of what is there" in line for line in told.said)
    assert READERS[reader](config, folder) and {piece.state for piece in pieces(config.out)} == {"done"}


def test_a_whole_record_that_is_gone_is_missed_by_name(finished):
    config, folder, sweep = finished
    shutil.rmtree(sweep)
    with pytest.raises(EnvironmentProblem, match=HELD_TO):
        read(folder)
    assert [piece.folder for piece in pieces(config.out) if piece.state == "damaged"] == [sweep]


def test_a_point_says_what_it_was_asked(finished):
    config, _, sweep = finished
    for end in (".json", ".samples.jsonl"):
        shutil.copy(sweep / f"0{end}", sweep / f"0.3{end}")
    with pytest.raises(EnvironmentProblem, match="was asked for 0"):
        run(config, jobs=1)


@pytest.mark.parametrize("name", ["cost.json", "target.json", "data.json"])
def test_what_only_one_file_of_a_training_claims_is_held_to_its_seal(finished, name):
    config, folder, sweep = finished
    change(sweep.parents[1] / name, schema=1)
    with pytest.raises(EnvironmentProblem, match=name):
        table_only(config)
    assert name in shown(folder)


def test_a_training_without_its_config_is_refused_by_name(finished):
    config, _, sweep = finished
    (sweep.parents[1] / "config.json").unlink()
    with pytest.raises(EnvironmentProblem, match=r"config\.json is missing"):
        table_only(config)


def test_the_list_and_the_end_of_another_run_are_refused(finished, config_of):
    config, folder, _ = finished
    other = run(config_of("dense"), jobs=1).folder
    shutil.copy(other / manifest.FILE, folder / manifest.FILE)
    for reader in READERS.values():
        with pytest.raises(EnvironmentProblem, match="another run's"):
            reader(config, folder)
    assert "another run's" in shown(folder)
    for name in ("run.json", "table.json", "answers.json", "methods.json"):
        shutil.copy(other / name, folder / name)
    with pytest.raises(EnvironmentProblem, match="another run's"):
        read_table(folder / "table.json")
    assert [one["state"] for one in runs_in(config.out, Wanted())].count("damaged") == 1
    told = Lines()
    run(config, told, jobs=1)
    assert any("another run's" in line for line in told.said) and read(folder)


@pytest.mark.parametrize("name", ["methods.json", "answers.json", "table.json", "run.json"])
def test_outputs_that_were_edited_are_told_by_who_lists_them(finished, name):
    config, folder, _ = finished
    (folder / name).write_text((folder / name).read_text().replace("gateskip", "gatesk1p"))
    (about,) = runs_in(config.out, Wanted())
    assert about["state"] == "damaged" and name in about["problem"]
    assert f"{name} in" in shown(folder) or name in shown(folder)


def test_a_page_leaves_out_what_was_edited_beside_a_table(finished):
    _, folder, _ = finished
    (folder / "methods.json").write_text((folder / "methods.json").read_text().replace('"C0"', '"C9"'))
    assert any("methods.json" in problem for problem in read_board([folder / "table.json"]).problems)


def test_a_page_says_how_many_records_of_a_large_run_it_looked_at(finished, monkeypatch):
    config, folder, _ = finished
    assert not any("evenly spread" in text for text in runs_of([folder])[0]["warnings"])
    monkeypatch.setattr(provenance, "_MOST_RECORDS", 1)
    listed = manifest.read(folder)
    (said,) = [text for text in runs_of([folder])[0]["warnings"] if "evenly spread" in text]
    first = [record for record in listed.seals if record.partition("/")[0] == listed.trainings[0].record]
    assert said.startswith(f"{len(first)} of the {len(listed.seals)} records")
    (config.out / "records" / first[-1] / "dial.json").unlink()
    assert any("dial.json is missing" in problem for problem in read_board([folder / "table.json"]).problems)


def test_a_timing_that_is_gone_or_edited_is_missed(finished):
    config, folder, _ = finished
    whole = plan(config)
    content = {
        "model_fingerprint": whole.trainings[0].content["backbone"],
        "method": "gateskip",
        "date": "2026-11-23",
        "setting": {"batch": 1, "prompt": 8, "new": 8, "precision": "fp32", "device": "cpu", "threads": 1}
        | {"device_name": "cpu"},
    }
    points = [{"saved": {"tokens": saved}, "saved_time": {"total": saved / 2}} for saved in (0.0, 0.4)]
    timings.write(config.out, content, {"points": points})
    rows = table_only(config).rows  # one that is new is used
    assert any(row["axis"] == "time" for row in rows) and manifest.read(folder).timings
    file = timings.path_of(config.out, content)
    change(file, points=[*points[:1], points[1] | {"saved_time": {"total": 0.3}}])
    with pytest.raises(EnvironmentProblem, match=rf"{file.name} changed"):
        table_only(config)
    file.unlink()
    with pytest.raises(EnvironmentProblem, match=rf"{file.name} is missing"):
        table_only(config)
    assert file.name in shown(folder)


def test_what_two_unfinished_runs_lack_is_said_beside_their_difference(finished, capsys):
    _, folder, sweep = finished
    listed = json.loads((folder / manifest.FILE).read_text())
    kept = {key: value for key, value in listed.items() if key not in ("seals", "content_sha256")}
    write_sealed(folder / manifest.FILE, kept)
    (sweep / "0.3.samples.jsonl").unlink()
    diff(folder, folder)
    said = " ".join(capsys.readouterr().out.split())
    assert "Not finished in" in said and "0.3.samples.jsonl" in said


def test_what_one_run_alone_measured_is_said_beside_the_difference(finished, config_of, capsys):
    _, folder, _ = finished
    other = run(config_of("dense"), jobs=1).folder
    diff(folder, other)
    assert "Only the first measured" in capsys.readouterr().out


def test_a_point_with_one_byte_edited_is_no_traceback(finished):
    _, folder, sweep = finished
    listed = json.loads((folder / manifest.FILE).read_text())
    kept = {key: value for key, value in listed.items() if key not in ("seals", "content_sha256")}
    write_sealed(folder / manifest.FILE, kept)
    file = sweep / "0.3.json"
    file.write_text(file.read_text().replace('"docs": 3', '"docs": 4'))
    with pytest.raises(EnvironmentProblem, match=r"0\.3\.json' changed since"):
        read(folder)


def test_a_copy_beside_a_point_is_nobody_s(finished):
    config, folder, sweep = finished
    before = read(folder)
    for end in (".json", ".samples.jsonl"):
        shutil.copy(sweep / f"0.3{end}", sweep / f"0.3 (1){end}")
    assert read(folder) == before and list(compared(folder, folder)) and table_only(config).rows


def test_points_that_another_run_measured_are_not_shown(shared):
    config, folder, _, (texts, rows, listed) = shared
    for _ in range(2):
        known = manifest.read(folder)
        assert read(folder) == texts == documents(known, known.evaluations, 0.2)
        assert list(compared(folder, folder)) == rows
        assert table_only(config).rows and (folder / manifest.FILE).read_bytes() == listed


def change_out(folder: Path, out: Path):
    values = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump(values | {"out": str(out)}))


def test_the_command_of_a_moved_run_names_where_it_lies(finished, tmp_path):
    config, folder, _ = finished
    change_out(folder, config.out)
    assert "--out" not in run_command(folder, ())
    moved = tmp_path / "moved"
    config.out.rename(moved)
    folder = moved / "runs" / folder.name
    assert run_command(folder, ()).endswith(f"--out {moved}")
    (folder / "table.json").write_text("[]")
    with pytest.raises(EnvironmentProblem, match=f"--out {moved} --table-only"):
        read_table(folder / "table.json")


def test_a_run_that_was_copied_alone_says_where_its_records_should_be(finished, tmp_path):
    """Records that are the same as at its end are read wherever they lie."""
    config, folder, _ = finished
    change_out(folder, config.out)
    copied = tmp_path / "elsewhere" / "runs" / folder.name
    shutil.copytree(folder, copied)
    manifest.read(copied).check()
    config.out.rename(tmp_path / "moved")
    with pytest.raises(EnvironmentProblem, match=f"no folder '{tmp_path / 'elsewhere' / 'records'}'.*beside `records`"):
        manifest.read(copied).check()
