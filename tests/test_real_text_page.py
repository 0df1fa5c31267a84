"""The page of the real-text experiment is made from records alone."""

import importlib.util
import json
from pathlib import Path

import pytest
import yaml

pytest.importorskip("matplotlib")
SCRIPT = Path(__file__).parent.parent / "docs" / "real_text.py"


@pytest.fixture
def page(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("real_text_page", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PAGE", tmp_path / "docs" / "real_text.md")
    return module


def row(method, level, score, task="perplexity:c4_sample", metric="bits_per_byte,none", axis="tokens"):
    return {
        "method": method, "semantics": "bench", "task": task, "metric": metric, "axis": axis, "phase": "all",
        "level": level, "score": score, "low": None, "high": None, "status": "ok", "timing": None,
    }  # fmt: skip


def test_it_shows_the_curve_the_tables_and_no_path_of_the_machine(page, tmp_path):
    folder = tmp_path / "runs" / "key"
    folder.mkdir(parents=True)
    train = {"steps": 160, "batch_size": 16, "learning_rate": 1e-4, "max_length": 384, "precision": "fp32"}
    about = {"model": "/home/someone/tiny", "methods": ["dense", "mod"], "tasks": ["perplexity:c4_sample", "piqa"]}
    about |= {"seeds": [1], "train": train, "evaluation": {"limit": 100, "num_fewshot": 0}, "train_on": ["gsm8k"]}
    about |= {"match_on": "tokens", "match_phase": "all", "data_dir": "/home/someone/data"}
    (folder / "config.yaml").write_text(yaml.safe_dump(about))
    rows = [row(method, level, 2.5 + level) for method in ("dense", "mod") for level in (0.0, 0.2)]
    rows += [each | {"axis": "net"} for each in rows]
    rows += [row(method, 0.0, 0.5, "piqa", "acc,none") for method in ("dense", "mod")]
    (folder / "table.json").write_text(json.dumps(rows))
    (folder / "run.json").write_text(json.dumps({"state": "done", "took_s": 600, "warnings": ["piqa: by chance"]}))
    page.write([folder])
    text = page.PAGE.read_text()
    assert "## tiny" in text and "someone" not in text and "* piqa: by chance" in text
    assert "| mod " in text and "acc,none" in text and "| took" in text and "10 min" in text
    for axis in ("tokens", "net"):
        picture = page.PAGE.parent / "real_text" / f"tiny-c4_sample-{axis}.svg"
        assert f"({picture.parent.name}/{picture.name})" in text and "mod" in picture.read_text()
    assert text.count("bits_per_byte,none ↓ by") == 4  # two titles, and two pictures called by them
