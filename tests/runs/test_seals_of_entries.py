"""What an entry holds its records to: the digests with which its run ended."""

import lzma
import shutil
from pathlib import Path

import pytest
from finished_run import HELD_TO, change

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.leaderboard.submission import submit
from adaptive_bench.methods.random_skip import RandomSkip
from adaptive_bench.runs import run
from adaptive_bench.runs.rederive import rederive
from adaptive_bench.store import manifest
from adaptive_bench.store.archive import files_in
from adaptive_bench.store.digest import unsealed
from adaptive_bench.store.overview import pieces
from adaptive_bench.store.packing import pack, unpack
from adaptive_bench.store.records import DialEvaluationRecord
from adaptive_bench.store.results import read_table

pytestmark = pytest.mark.slow

ABOUT = {"authors": ["A. Name"], "licence": "CC-BY-4.0"}


def test_an_entry_has_the_records_that_its_run_ended_with(shared, tmp_path):
    config, folder, sweep, _ = shared
    DialEvaluationRecord(sweep).move("running")
    (sweep / "0.2.json").unlink()  # the other run was killed while it measured this one
    archive = submit(folder, tmp_path / "entries", with_records=True, about=ABOUT) / "records.tar.xz"
    found = rederive(config, archive, read_table(folder / "table.json"))
    assert found.sealed and not found.differences
    names = [Path(name).name for name, _ in files_in(archive, str)]
    assert "0.3.json" in names and not {"0.2.json", "0.2.samples.jsonl"} & set(names)
    unpack(archive, tmp_path / "there")
    assert {piece.state for piece in pieces(tmp_path / "there")} == {"done"}


def test_an_entry_with_an_edited_answer_is_refused(finished, tmp_path):
    _, folder, sweep = finished
    file = sweep / "0.3.samples.jsonl"
    file.write_text(file.read_text().replace('"doc": 0', '"doc": 9', 1))
    with pytest.raises(EnvironmentProblem, match=r"0\.3\.samples\.jsonl changed since"):
        submit(folder, tmp_path / "entries", with_records=True, about=ABOUT)
    assert not (tmp_path / "entries").exists()


def test_an_entry_takes_its_seals_along(finished, tmp_path):
    config, folder, sweep = finished
    entry = submit(folder, tmp_path / "entries", with_records=True, about=ABOUT)
    rows = read_table(folder / "table.json")
    assert rederive(config, entry / "records.tar.xz", rows).sealed
    packed, loose = entry / manifest.PACKED, tmp_path / manifest.FILE
    whole = packed.read_bytes()
    loose.write_bytes(lzma.decompress(whole))
    own, known = unsealed(loose.read_bytes()), unsealed((folder / manifest.FILE).read_bytes())
    assert own == known | {"run_key": None}  # which hangs on folders of the machine
    shutil.copy(folder / manifest.FILE, loose)
    change(loose, seals={**manifest.read(folder).seals, sweep.parents[1].name: "cost.json:" + "0" * 16})
    packed.write_bytes(lzma.compress(loose.read_bytes()))
    with pytest.raises(EnvironmentProblem, match=r"cost\.json changed"):
        rederive(config, entry / "records.tar.xz", rows)
    loose.write_text(loose.read_text().replace("cost.json", "cast.json"))
    bomb = lzma.compress(bytes(51_000_000), preset=0)
    for content in (
        b"",
        b"[]",
        whole[:-9],
        whole + b"1",
        bomb,
        lzma.compress(b"{}"),
        lzma.compress(loose.read_bytes()),
    ):
        packed.write_bytes(content)
        with pytest.raises(EnvironmentProblem, match=r"manifest\.json\.xz lists its records .* Submit the run again"):
            rederive(config, entry / "records.tar.xz", rows)
    change(sweep / "0.3.json", wall_s=9.0)
    with pytest.raises(EnvironmentProblem, match=HELD_TO):
        submit(folder, tmp_path / "others", with_records=True, about=ABOUT)


def test_unpacking_compares_digests(finished, tmp_path):
    config, folder, sweep = finished
    archive = submit(folder, tmp_path / "entries", with_records=True, about=ABOUT) / "records.tar.xz"
    assert not unpack(archive, config.out).different and not unpack(archive, tmp_path / "there").different
    change(sweep / "0.3.json", wall_s=9.0)
    (name,) = unpack(archive, config.out).different
    assert "0.3.json is another one" in name and sweep.name in name
    with pytest.raises(EnvironmentProblem, match=r"digest is not the one in the entry\.json"):
        unpack(archive, tmp_path / "there", "0" * 64)


def test_an_archive_with_an_edited_file_is_refused(finished, tmp_path):
    _, _, sweep = finished
    record = sweep.parents[1]
    for name, old, new, why in (
        ("0.3.json", '"docs": 3', '"docs": 4', r"0\.3\.json changed"),
        ("0.samples.jsonl", '"doc": 0', '"doc": 9', r"0\.samples\.jsonl changed"),
    ):
        text = (sweep / name).read_text()
        (sweep / name).write_text(text.replace(old, new, 1))
        archive = tmp_path / "records.tar.xz"
        archive.write_bytes(pack([record]))
        with pytest.raises(EnvironmentProblem, match=why):
            unpack(archive, tmp_path / "there")
        (sweep / name).write_text(text)


class Own(RandomSkip):
    """A method whose plugin goes away."""


def test_without_its_plugin_a_finished_run_is_read_and_an_entry_verified(config_of, registered, tmp_path, monkeypatch):
    registered("own", Own)
    config = config_of("dense,own")
    outcome = run(config, jobs=1)
    about = ABOUT | {"package": "own==1.0"}
    entry = submit(outcome.folder, tmp_path / "entries", with_records=True, about=about)
    archive = entry / "records.tar.xz"
    whole = rederive(config, archive, outcome.rows)
    assert not whole.differences and not whole.unprojected
    monkeypatch.delitem(registry._registered, ("methods", "own"))
    found = rederive(config, archive, outcome.rows)
    assert not found.differences and found.unprojected == ("own",) and 0 < found.rows < whole.rows
    false = [row | {"score": 0.9} if row["method"] == "own" else row for row in outcome.rows]
    assert rederive(config, archive, false).differences
    again = run(config, table_only=True)
    assert again.rows == outcome.rows and "is not here" in again.warnings[-1]
    point = next((config.out / "records").glob("*/eval/*/0.3.json"))
    change(point, wall_s=9.0)
    with pytest.raises(EnvironmentProblem, match=HELD_TO):
        run(config, table_only=True)
    with pytest.raises(UsageError, match="No method is called 'own'"):
        run(config.model_copy(update={"out": tmp_path / "nothing"}), table_only=True)
