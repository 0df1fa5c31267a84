"""The page of the benchmarks is what the generator makes of the results, and every benchmark is found."""

import importlib
import json
import re
import subprocess
import sys
import tarfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from adaptive_bench import registry

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
MODULES = (
    *("measure", "page", "gpu_page", "plot", "decode", "decode_parts", "growth", "training_step", "prefill"),
    *("host_reads", "smollm2", "evaluation"),
)
SIMULATIONS = ("coverage", "pair_coverage", "ranking", "simulated")


@pytest.fixture
def benchmark(monkeypatch):
    """Import a file of `benchmarks/` as the benchmarks themselves do."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in (*MODULES, *SIMULATIONS):
        sys.modules.pop(name, None)


def test_the_page_and_its_pictures_are_up_to_date(benchmark):
    page = benchmark("page")
    for file, text in page.render(page.load()).items():
        assert (page.PAGE.parent / file).read_text(encoding="utf-8") == text, "run: python benchmarks page"


def test_pictures_are_well_formed_and_linked(benchmark):
    rows = [
        {"axis": axis, "value": value, "phase": phase, "dense_speedup": 1.0, "speedup": 1.5, "net": 0.4, "felt": felt}
        for axis in ("layers", "width", "length", "batch")
        for value, felt in ((2, -0.4), (4, 0.8))
        for phase in ("prefill", "decode")
    ]
    texts = benchmark("page").render({"growth": rows, "setups": {"growth": {"middle": {"layers": 4}}}, "eval_x": 2.0})
    pictures = re.findall(r"!\[.*\]\((.*)\)", texts["benchmarks.md"])
    assert sorted(pictures) == sorted(file for file in texts if file.endswith(".svg"))
    for picture in pictures:
        ElementTree.fromstring(texts[picture])
    assert "eval_x" in texts["benchmarks.md"]


def test_products_with_weights_are_told_from_the_rest_of_a_step(benchmark):
    """A Llama of L layers has 7 L linear maps and the head; who skips everything has the head alone."""
    parts, measure = benchmark("decode_parts"), benchmark("measure")
    plain = measure.llama(hidden=32, layers=2, inner=48, vocabulary=64, heads=4, kv_heads=2)
    variants = measure.drives(plain, {"dense": ("dense", 0.0), "nobody": ("random_skip[kv=evict]", 1.0)})
    for name, (whole, inside, count) in parts.parts(variants, measure.tokens(2, 12, 64), 8).items():
        assert count == [1 if name == "nobody" else 2 * 7 + 1] * 4
        assert all(0 < inner < outer for inner, outer in zip(inside, whole, strict=True))


def test_the_real_shape_has_a_section_of_its_own(benchmark, monkeypatch):
    """Everything that it measures, at a tiny shape, is on the page."""
    real, measure = benchmark("smollm2"), benchmark("measure")
    for name, value in {"BATCH": 2, "LENGTH": 12, "PROMPT": 8, "BATCHES": (1, 2)}.items():
        monkeypatch.setattr(real, name, value)
    plain = measure.llama(hidden=32, layers=3, inner=48, vocabulary=2048, heads=4, kv_heads=2, tie_word_embeddings=True)
    monkeypatch.setitem(real.CASES, "generation", real.Case("nano_math", 0, 1, 1))
    found = {"prefill": real.prefill(plain, 1), "decode": real.decode(plain, 2)}
    found |= {"evaluation": real.evaluated(plain, None, 1), "training": real.training(plain, 1)}
    page = benchmark("page").render({"smollm2": found})["benchmarks.md"]
    for shown in ("8 of 30 layers left out", "| 50 % skipped at random", "batch 2", "| GateSkip", "| generation"):
        assert shown in page
    nets = {row["variant"]: row["net"] for row in found["prefill"]}
    assert nets["dense"] == 0 < nets["25"] < nets["50"]


def test_merging_leaves_the_keys_of_others_alone(benchmark, tmp_path, monkeypatch):
    measure = benchmark("measure")
    assert measure.ratio([1.0, 10.0, 4.0], [1.0, 5.0, 1.0]) == 2.0, "ratios are taken within a round"
    monkeypatch.setattr(measure, "RESULTS", tmp_path / "results.json")
    measure.merge("one", {"a": 1.0}, batch=2)
    measure.merge("two", {"b": 2.0})
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["a"], results["b"]) == (1.0, 2.0)
    assert results["setups"]["one"]["batch"] == 2
    assert {"device", "threads", "torch"} <= set(results["setups"]["two"])


def test_every_file_that_runs_is_a_benchmark(benchmark, monkeypatch):
    spec = importlib.util.spec_from_file_location("benchmarks_main", FOLDER / "__main__.py")
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    assert {"decode", "growth", "prefill", "training_step"} <= set(main.benchmarks())
    assert not {"measure", "page", "plot"} & set(main.benchmarks())
    assert main.wanted_of(["decode", "gpu"], []) == ["decode"] and main.wanted_of(["decode", "gpu"], ["gpu"]) == ["gpu"]
    with pytest.raises(SystemExit, match="decode"):
        main.main(["dekode"])


def test_the_simulations_of_the_statistics_fill_their_tables(benchmark):
    coverage, ranking = benchmark("coverage"), benchmark("ranking")
    shown = (FOLDER.parent / "docs" / "statistics.md").read_text(encoding="utf-8")
    assert shown.startswith(coverage.TEXT.format(tables=1500, means="0.02, 0.1, 0.5, 0.9, 0.98"))
    for rows in (ranking.power(2), ranking.at_once(1), benchmark("pair_coverage").collapsing(2)):
        found = list(rows)
        assert all(f"\n| {row[0]} " in shown and len(row) == len(found[0]) for row in found)
        assert all(0 <= float(value) <= 100 for row in found for value in row[1:])


def test_host_reads_of_every_method_are_within_two_a_step(benchmark):
    """The page's rows are of all methods; one of them is counted anew."""
    rows = {row["method"]: row for row in json.loads((FOLDER / "results.json").read_text())["host_reads"]}
    assert set(rows) == {name for name in registry.names("methods") if not registry.is_foreign("methods", name)}
    for row in rows.values():
        assert max(row["step"]) + 1 <= 2 and max(row["training"] or [0]) + 1 <= 2
    reads = benchmark("host_reads")
    assert [reads.while_writing("gateskip", layers) for layers in reads.LAYERS] == [
        tuple(pair) for pair in zip(rows["gateskip"]["prefill"], rows["gateskip"]["step"], strict=True)
    ]
    assert [reads.while_training("gateskip", layers) for layers in reads.LAYERS] == rows["gateskip"]["training"]


# What travels to a GPU machine without a network, and how it is put together there (`benchmarks/gpu_preset.py`).


@pytest.fixture
def preset(monkeypatch):
    """The script, imported as itself."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("gpu_preset")
    sys.modules.pop("gpu_preset", None)


def test_parts_have_the_sums_that_sha256sum_checks_and_give_the_file_again(preset, tmp_path):
    whole, folder = tmp_path / "whole", tmp_path / "parts"
    whole.write_bytes(bytes(i * i % 251 for i in range(1000)))
    folder.mkdir()
    preset.split(whole, folder, 300)
    assert [file.stat().st_size for file in sorted(folder.glob("part-*"))] == [300, 300, 300, 100]
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", preset.SUMS], cwd=folder, check=True)
    preset.join(folder, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == whole.read_bytes()
    (folder / "part-01").unlink()
    (folder / "part-03").write_bytes(b"x" * 100)
    with pytest.raises(SystemExit, match=r"part-01 \(missing\), part-03 \(damaged\)\.$"):
        preset.join(folder, tmp_path / "again")


def _needs(name):
    """What a distribution needs without extras."""
    found = map(Requirement, requires(name) or ())
    return {canonicalize_name(one.name) for one in found if not one.marker or one.marker.evaluate({"extra": ""})}


def test_all_that_the_project_needs_is_packed_but_pytorch_transformers_and_their_needs(preset):
    python = "{}.{}".format(*sys.version_info)
    packed = {text.partition("==")[0] for text in preset.needed((), python)}
    there = {"torch", "transformers"} | _needs("torch") | _needs("transformers")
    assert {"numpy", "tokenizers", "safetensors", "huggingface-hub", "filelock"} <= there
    assert not packed & there
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    assert named | {"gguf"} <= packed | there
    assert set().union(*map(_needs, packed)) <= packed | there
    assert "aiohttp" in packed  # by the extra that datasets asks of fsspec, which PyTorch needs without


def test_what_else_the_machine_has_is_left_out_with_what_it_alone_needs(preset):
    everything, fewer = (preset.needed(has, "3.12") for has in ((), ("scikit_learn", "pandas")))
    names = {text.partition("==")[0] for text in set(everything) - set(fewer)}
    assert {"scikit-learn", "pandas", "narwhals"} <= names and "scipy" not in names
    assert set(fewer) < set(everything)


def test_a_step_ends_with_the_time_and_is_done_once(preset, tmp_path):
    machine = preset.Machine(tmp_path / "work", tmp_path / "out", 60)
    # What a shell starts in the background ignores interrupts, unless it says that it does not.
    code = "import signal, time; signal.signal(signal.SIGINT, signal.default_int_handler); print('begun', flush=True)"
    begun_s = time.monotonic()
    assert machine.call("-c", f"{code}; time.sleep(60)", seconds=1) is None
    assert time.monotonic() - begun_s < 15
    machine.once("once", lambda: machine.call("-c", "print('again'); raise SystemExit(3)"))
    machine.once("once", lambda: pytest.fail("it was done"))
    assert machine.call("-c", "raise SystemExit(3)") == 3
    assert "begun" in machine.tail() and machine.tail().count("again") == 1
    assert (tmp_path / "out" / "timings.txt").read_text().startswith("once: ")


def test_results_are_copied_without_weights(preset, tmp_path):
    machine = preset.Machine(tmp_path / "work", tmp_path / "out", 60)
    run, training = tmp_path / "work" / "runs" / "runs" / "one", tmp_path / "work" / "runs" / "records" / "two"
    for folder in (run, training / "checkpoint"):
        folder.mkdir(parents=True)
    for name in ("table.json", "leaderboard.md", "leaderboard.svg"):
        (run / name).write_text(name)
    for name in ("status.json", "state.pt", "checkpoint/tokenizer.json"):
        (training / name).write_text(name)
    machine.save()
    tables = {"table.json", "leaderboard.md", "leaderboard.svg"}
    assert {file.name for file in machine.out.iterdir()} == tables | {"records.tar.gz"}
    with tarfile.open(machine.out / "records.tar.gz") as archive:
        assert {Path(name).name for name in archive.getnames()} == tables | {"status.json"}
