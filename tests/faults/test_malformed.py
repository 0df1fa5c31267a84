"""Hundreds of malformed inputs, generated: each is refused with one of our errors or marked, none gives a number.

Text is damaged as disks and editors do it (cut, a bit flipped, a part doubled or replaced), and JSON as programs of
other versions do it (a value replaced or left out). What is damaged lies in a copy and is put back.
"""

import json
import shutil

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_bench.cli.show import show
from adaptive_bench.config_file import load_config
from adaptive_bench.errors import AdaptiveBenchError
from adaptive_bench.method import method_class
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.recipe import EvalRecipe, TrainRecipe
from adaptive_bench.runs import plan, run
from adaptive_bench.runs.outcome.table import outcome_of
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.overview import pieces
from adaptive_bench.store.results import load_results, read_run
from adaptive_bench.strict_yaml import read_mapping
from adaptive_bench.testing.model_folder import write_model_folder
from adaptive_bench.training import checkpoint

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def examples(count):
    """As many examples as said, always the same ones."""
    unhealthy = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=count, derandomize=True, deadline=None, database=None, suppress_health_check=unhealthy)


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """Other bytes than these."""
    place = draw(st.integers(0, max(0, len(content) - 1)))
    kind = draw(st.sampled_from(["cut", "flipped", "doubled", "replaced", "zeroed", "other"]))
    if kind == "cut":
        return content[:place]
    if kind == "flipped":
        found = bytearray(content or b"\0")
        found[place] ^= 1 << draw(st.integers(0, 7))
        return bytes(found)
    if kind == "doubled":
        return content[:place] + content[max(0, place - 20) :]
    if kind == "replaced":
        return content[:place] + draw(st.binary(min_size=1, max_size=8)) + content[place + 3 :]
    if kind == "zeroed":
        return content[:place] + bytes(len(content) - place)
    return draw(st.binary(max_size=40))


@st.composite
def altered(draw, values):
    """The same JSON with one value replaced or left out, wherever it is."""
    if isinstance(values, dict) and values and draw(st.integers(0, 9)) > 0:
        key = draw(st.sampled_from(sorted(values)))
        if draw(st.integers(0, 4)) == 0:
            return {name: value for name, value in values.items() if name != key}
        return {**values, key: draw(altered(values[key]))}
    if isinstance(values, list) and values and draw(st.booleans()):
        place = draw(st.integers(0, len(values) - 1))
        return [*values[:place], draw(altered(values[place])), *values[place + 1 :]]
    return draw(JSON_VALUES)


def refused(error: AdaptiveBenchError) -> None:
    """One of our errors, for a reader: a code of the command line, and a sentence of a sane length."""
    assert error.exit_code in (1, 2) and 20 < len(str(error)) < 5000 and "Traceback" not in str(error)


def holds(call, *arguments):
    """What a call gives; `None` if it refused."""
    try:
        return call(*arguments)
    except AdaptiveBenchError as error:
        refused(error)
        return None


CONFIG = {
    "methods": ["dense", "gateskip[shape=scalar]"],
    "tasks": ["nano_math"],
    "seeds": 2,
    "levels": [0.0, 0.1],
    "match_on": "net",
    "out": "runs",
    "train": {"steps": 10, "batch_size": 4, "learning_rate": 0.001, "betas": [0.9, 0.95]},
    "evaluation": {"limit": 8, "grid": [0.0, 0.2]},
}


@examples(70)
@given(content=damaged(yaml.safe_dump(CONFIG).encode()))
def test_damaged_config_files(content, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    holds(load_config, file)


@examples(70)
@given(values=altered(CONFIG))
def test_configs_with_other_values(values, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(values))
    config = holds(load_config, file)
    if config is not None:
        assert 1 <= len(config.seeds) <= 1000 and all(0 <= level < 1 for level in config.levels or ())


SPEC = st.one_of(
    st.text(max_size=30),
    damaged(b"gateskip[shape=scalar,sparsity_weight=0.1]@paper").map(lambda content: content.decode("latin-1")),
    st.builds(
        "{}[{}={}]@{}".format,
        st.sampled_from(["dense", "gateskip", "mod", "calm", "free", "layerskip"]),
        st.sampled_from(["shape", "kv", "sparsity_weight", "capacity", "", "x"]),
        st.text(max_size=6) | st.floats().map(str) | st.integers().map(str),
        st.sampled_from(["bench", "paper", "", "x"]),
    ),
)


@examples(80)
@given(text=SPEC)
def test_method_specs(text):
    def parsed():
        spec = MethodSpec.parse(text)
        return method_class(spec).parse_config(spec)

    holds(parsed)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small run: its plan, its output folder, its rows."""
    home = tmp_path_factory.mktemp("run")
    from adaptive_bench.config import RunConfig

    config = RunConfig(
        methods="gateskip",
        tasks=("nano_qa_ll",),
        model=str(write_model_folder(home / "model")),
        out=home / "out",
        levels=(0.0, 0.1),
        match_on="tokens",
        device="cpu",
        train=TrainRecipe(steps=2, batch_size=2, warmup_steps=1, max_length=400),
        evaluation=EvalRecipe(batch_size=4, limit=3, calibration_examples=4, grid=(0.0, 0.3)),
    )
    outcome = run(config, jobs=1)
    return plan(config), config.out, outcome


@pytest.fixture(scope="module")
def files(finished):
    """The JSON files of its records, and the documents of its points."""
    records = finished[1] / "records"
    found = [*records.rglob("*.json"), *records.rglob("*.samples.jsonl")]
    return [file for file in found if "checkpoint" not in file.parts]


def scores(rows):
    """Numbers of a table that anybody would quote."""
    keys = ("method", "task", "axis", "phase", "level", "status", "score", "low", "high", "saved_net", "saved_tokens")
    return [tuple(getattr(row, key) for key in keys) for row in rows]


def looked_at(finished, file, content, *, sealed=True):
    """Everything that reads records, with one file replaced; of sealed ones no number may differ from what was
    measured.
    """
    whole, out, _ = finished
    before = file.read_bytes()
    right = scores(outcome_of(whole).rows)
    try:
        file.write_bytes(content)
        table = holds(outcome_of, whole)
        assert table is None or not sealed or set(scores(table.rows)) <= set(right)
        found = holds(lambda: list(pieces(out)))
        assert not sealed or len(found or []) == 2
        for record in (whole.trainings[0].folder, whole.sweeps[0].folder):
            holds(show, record)
    finally:
        file.write_bytes(before)


@examples(80)
@given(data=st.data())
def test_damaged_records(data, finished, files):
    file = data.draw(st.sampled_from(files))
    looked_at(finished, file, data.draw(damaged(file.read_bytes())))


@examples(50)
@given(data=st.data())
def test_records_of_another_hand(data, finished, files):
    """Without the digest at their end, as earlier versions wrote them, and with something else in them."""
    file = data.draw(st.sampled_from([file for file in files if file.suffix == ".json"]))
    values = {key: value for key, value in json.loads(file.read_text()).items() if key != "content_sha256"}
    looked_at(finished, file, json.dumps(data.draw(altered(values))).encode(), sealed=False)


@examples(50)
@given(data=st.data())
def test_tables_and_runs(data, finished, tmp_path_factory):
    _, _, outcome = finished
    folder = tmp_path_factory.mktemp("copy") / "run"
    shutil.copytree(outcome.folder, folder)
    file = folder / data.draw(st.sampled_from(["table.json", "run.json", "config.yaml"]))
    if file.suffix == ".json" and data.draw(st.booleans()):
        file.write_text(json.dumps(data.draw(altered(json.loads(file.read_text())))))
    else:
        file.write_bytes(data.draw(damaged(file.read_bytes())))
    holds(load_results, folder)
    assert isinstance(read_run(folder / "config.yaml"), dict)
    holds(read_mapping, folder / "config.yaml")
    shutil.rmtree(folder)


@examples(40)
@given(data=st.data())
def test_saved_models(data, finished):
    """Loaded as it was, or refused."""
    folder = finished[0].trainings[0].checkpoint
    names = ["adaptive.json", "method.safetensors", "backbone/config.json", "backbone/model.safetensors"]
    names.append("calibration/gateskip/nano_qa_ll.safetensors")
    file = folder / data.draw(st.sampled_from(names))
    right = AdaptiveModel.from_pretrained(folder)
    before = file.read_bytes()
    try:
        file.write_bytes(data.draw(damaged(before)))
        model = holds(AdaptiveModel.from_pretrained, folder)
    finally:
        file.write_bytes(before)
    if model is not None and file.parent.name != "gateskip":
        assert (model.dial, model.method.seed) == (right.dial, right.method.seed)
        state = right.state_dict()
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@examples(30)
@given(data=st.data())
def test_checkpoints_of_a_training(data, finished, tmp_path_factory):
    model = AdaptiveModel.from_pretrained(finished[0].trainings[0].checkpoint)
    optimizer = torch.optim.AdamW(model.parameters())
    folder = tmp_path_factory.mktemp("resume")
    checkpoint.save(folder, checkpoint.Progress(1, 1), model, optimizer)
    newest = checkpoint.newest(folder)
    file = newest / data.draw(st.sampled_from(["progress.json", "weights.safetensors", "optimizer.safetensors"]))
    before = file.read_bytes()
    file.write_bytes(data.draw(damaged(before)))
    progress = holds(checkpoint.restore, newest, model, optimizer)
    assert progress is None or file.read_bytes() == before
    shutil.rmtree(folder)
