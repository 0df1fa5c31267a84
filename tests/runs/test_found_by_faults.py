"""What fault injection has found once, each held down by a test of its own."""

import contextlib
import json
import os
import signal

import pytest
from safetensors import SafetensorError
from small_runs import untimed

from adaptive_bench.data import Source, read_rows
from adaptive_bench.errors import EnvironmentProblem, Interrupted
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.runs import plan, run
from adaptive_bench.runs.backbone_source import find_backbone
from adaptive_bench.runs.model_checks import model_facts
from adaptive_bench.store import atomic
from adaptive_bench.store.manifest import pieces
from adaptive_bench.training import loop, resume

pytestmark = pytest.mark.slow


# Wrong numbers


def test_a_file_replaced_under_its_old_time_is_read_anew(tmp_path, monkeypatch):
    """As a copy of a hub's repository, which the library `datasets` reads through a cache."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "data" / "mine"
    folder.mkdir(parents=True)
    file = folder / "test.csv"
    source = Source("owner/mine")
    found = []
    for answer in (4, 5):  # of the same size
        file.write_text(f"question,answer\ntwo and two,{answer}\n")
        os.utime(file, (1_700_000_000, 1_700_000_000))
        found.append(read_rows(source, "test", tmp_path / "data")[0]["answer"])
    assert found == [4, 5]


# Failures that spread or hide


@pytest.mark.parametrize(
    "error",
    [
        SafetensorError("I/O error: No space left on device"),
        OSError(28, "No space left"),
        Exception("No space left on device (os error 28)"),  # as tokenizers say it
    ],
)
def test_weights_that_cannot_be_written_are_a_problem_of_the_folder(config_of, monkeypatch, error):
    def full(*_, **__):
        raise error

    monkeypatch.setattr(AdaptiveModel, "save_pretrained", full)
    config = config_of("dense")
    (failure, *_) = run(config).failures
    assert failure.kind == EnvironmentProblem.kind and "--out" in failure.reason and "No space" in failure.reason
    monkeypatch.undo()
    assert run(config).exit_code == 0


# Traces


def test_what_a_killed_process_was_writing_goes_when_it_is_written_again(tmp_path):
    gone = atomic._temporary(tmp_path / "run.json").name.replace(f"-{os.getpid()}-", "-999999999-")
    (tmp_path / gone).write_text("half")
    atomic.write_json(tmp_path / "other.json", 1)
    assert (tmp_path / gone).exists()
    atomic.write_json(tmp_path / "run.json", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.json", "run.json"]


# Untrusted content


def test_code_in_a_model_folder_is_neither_run_nor_asked_about(changed_model, monkeypatch):
    folder = changed_model(auto_map={"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.Mine"})
    marker, tokenizer = folder / "was_run", folder / "tokenizer_config.json"
    (folder / "mine.py").write_text(f"open({str(marker)!r}, 'w')\nclass Mine: pass\n")
    of_code = {"auto_map": {"AutoTokenizer": ["mine.Mine", None]}, "tokenizer_class": "Mine"}
    tokenizer.write_text(json.dumps(json.loads(tokenizer.read_text()) | of_code))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    source = find_backbone(str(folder))
    for load in (source.load_model, source.load_tokenizer):
        with contextlib.suppress(EnvironmentProblem):
            load()
    assert not marker.exists()


def test_a_list_of_weights_names_files_that_are_there(changed_model):
    folder = changed_model()
    listed = {"metadata": {}, "weight_map": {"lm_head.weight": "absent.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(listed))
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    with pytest.raises(EnvironmentProblem, match=r"cannot be read: .*absent\.safetensors"):
        model_facts(str(folder))


@pytest.mark.parametrize("changes", [{"num_hidden_layers": "many"}, {"vocab_size": 10**12}, {"head_dim": 10**10}])
def test_a_giant_is_refused_before_anybody_makes_room_for_it(changed_model, changes):
    with pytest.raises(EnvironmentProblem):
        model_facts(str(changed_model(**changes)))


def test_a_finished_run_is_shown_where_nothing_can_be_written(config_of, monkeypatch):
    config = config_of("dense")
    first = run(config)

    def refuse(path, *_):
        raise EnvironmentProblem(f"{path} cannot be written")

    for name in ("write_bytes", "temporary_folder", "remove"):
        monkeypatch.setattr(atomic, name, refuse)
    assert untimed(run(config).rows) == untimed(first.rows)
    assert [piece.state for piece in pieces(config.out)] == ["done", "done"]


# Ctrl-C


@pytest.fixture
def pressed(monkeypatch):
    """`pressed(times)`: Ctrl-C so often while the second step is computed."""

    def press(times):
        step = loop._Training._step

        def interrupted(self, number):
            for _ in range(times if number == 1 else 0):
                os.kill(os.getpid(), signal.SIGINT)
            return step(self, number)

        monkeypatch.setattr(loop._Training, "_step", interrupted)

    return press


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_before_the_first_checkpoint_keeps_its_steps_and_a_second_one_stops_at_once(
    config_of, pressed, monkeypatch, lines, times
):
    config = config_of("dense", train={"checkpoint_every": 100})
    pressed(times)
    with pytest.raises(Interrupted):
        run(config)
    (training,) = plan(config).trainings
    kept = resume.newest(training.folder / "resume")
    assert training.record.state == "partial"
    assert kept is None if times == 2 else resume.steps_done(kept) == 2
    monkeypatch.undo()
    assert run(config, lines).exit_code == 0
    assert any("resumed after step 2 of 3" in line for line in lines.lines) == (times == 1)
