"""Every mistake of the corpus is refused: with its kind of error and exit code, in words, soon, and not as a defect."""

import runpy
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import adaptive_bench.runs  # noqa: F401 - imported beforehand: the clock is for what a mistake costs
from adaptive_bench import registry
from adaptive_bench.store.results import write_run

pytestmark = pytest.mark.slow

corpus = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("bad_input.py"))))  # tests are no package
# Of this process; 3 are asked for on a free core, and two processes on one core's two threads take twice as long.
_MOST_SECONDS = 8.0
_LONGEST = 6000  # characters
GSM8K_TRAIN = "".join(
    f'{{"question": "What is {n} + 1?", "answer": "It is {n + 1}.\\\\n#### {n + 1}"}}\n' for n in range(40)
)


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_registered", {})


@pytest.fixture
def refused(command, tmp_path, model_folder):
    """`refused(arguments, kind, words)`: the command ends as it must."""

    def check(arguments, kind, words):
        places = {"{model}": model_folder, "{data}": tmp_path / "data", "{here}": tmp_path}
        texts = [str(places.get(text, text)) for text in arguments]
        start_s = time.process_time()
        result = command(*texts)
        took_s = time.process_time() - start_s
        told = " ".join(result.stderr.split())
        assert result.exit_code == corpus.EXIT_CODES[kind], told or result.stdout
        assert "Defect" not in told and "Traceback" not in told
        assert f"{kind}:" in told
        assert "".join(words.split()) in "".join(told.split()), told
        assert len(result.stderr) < _LONGEST
        assert not set(result.stderr) & set("\x1b\x07\x00")
        assert took_s < _MOST_SECONDS

    return check


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    corpus.ARGUMENTS,
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else None,
)
def test_arguments(refused, arguments, kind, words):
    refused((*arguments, *_dry(arguments)), kind, words)


@pytest.mark.parametrize(("content", "kind", "words"), corpus.CONFIGS, ids=range(len(corpus.CONFIGS)))
def test_config_files(refused, tmp_path, content, kind, words):
    _write(tmp_path / "mine.yaml", content)
    refused(("run", "--config", "mine.yaml", "--dry-run"), kind, words)


@pytest.mark.parametrize(("content", "kind", "words"), corpus.PLUGINS, ids=range(len(corpus.PLUGINS)))
def test_plugin_files(refused, tmp_path, model_folder, content, kind, words):
    _write(tmp_path / "mine.py", content)
    how = ("--model", "{model}", "--tasks", "nano_qa_ll", "--limit", "4", "--dry-run")
    refused(("run", "--plugin", "mine.py", "--methods", "mine", *how), kind, words)


@pytest.mark.parametrize(("content", "kind", "words"), corpus.TABLES, ids=range(len(corpus.TABLES)))
def test_tables(refused, tmp_path, content, kind, words):
    _write(tmp_path / "runs" / "table.json", content)
    write_run(tmp_path / "runs", {})
    refused(("leaderboard",), kind, words)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    corpus.MODELS,
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_models(refused, tmp_path, arguments, kind, words):
    (tmp_path / "data").mkdir()
    (tmp_path / "file").touch()
    tasks = () if "--tasks" in arguments else ("--tasks", "nano_qa_ll")
    refused(("run", *tasks, "--limit", "4", "--dry-run", *arguments), kind, words)


@pytest.mark.parametrize(("name", "change", "kind", "words"), corpus.FOLDERS, ids=range(len(corpus.FOLDERS)))
def test_model_folders(refused, tmp_path, model_folder, name, change, kind, words):
    shutil.copytree(model_folder, tmp_path / "model")
    file = tmp_path / "model" / name
    match change:
        case None:
            file.unlink()
        case int():
            file.write_bytes(file.read_bytes()[:change])
        case (old, new):
            assert old in file.read_text()
            file.write_text(file.read_text().replace(old, new))
        case _:
            _write(file, change)
    refused(("run", "--model", "model", "--tasks", "nano_qa_ll", "--limit", "4", "--dry-run"), kind, words)


@pytest.mark.parametrize(("content", "kind", "words"), corpus.DATA, ids=range(len(corpus.DATA)))
def test_data_files(refused, tmp_path, content, kind, words):
    _write(tmp_path / "data" / "gsm8k" / "train.jsonl", GSM8K_TRAIN)
    if content is not None:
        _write(tmp_path / "data" / "gsm8k" / "test.jsonl", content)
    how = ("--model", "{model}", "--data-dir", "{data}", "--methods", "dense", "--dry-run", "--train-steps", "1")
    refused(("run", "--tasks", "gsm8k", *how), kind, words)


def _dry(arguments):
    """What keeps a `run` from work, should nothing be wrong with it after all."""
    return ["--dry-run"] if arguments[0] == "run" and "--table-only" not in arguments else []


def _write(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        file.write_text(content, encoding="utf-8")
