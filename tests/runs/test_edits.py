"""Edits between two runs, one at a time, of what a result rests on and of results. After each the table is that of a
fresh output folder, or the command is refused, or a warning is given; and each time it is said which.

`python tests/runs/test_edits.py` prints the table of edits and what happened.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from safetensors.torch import load_file, save_file

from adaptive_bench import closure, registry, source
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import AdaptiveBenchError, Defect
from adaptive_bench.evaluation import lookup
from adaptive_bench.runs import plan, run
from adaptive_bench.runs.outcome.naming import run_folder
from adaptive_bench.runs.work import training as training_work
from adaptive_bench.store.atomic import write_sealed
from adaptive_bench.store.results import read_table
from adaptive_bench.testing.model_folder import write_model_folder

pytestmark = pytest.mark.slow

TASK_YAML = """
include: ../shared/metric.yaml
task: edited
output_type: multiple_choice
custom_dataset: !function docs.load
test_split: test
fewshot_split: shots
num_fewshot: 1
doc_to_text: "{{question}} Which letter?"
doc_to_choice: ["a", "b"]
doc_to_target: gold
metadata: {version: 1}
"""
FILE_YAML = """
task: of_file
dataset_path: json
dataset_kwargs: {data_files: {test: "WORLD/shared/rows.jsonl"}}
process_docs: !function process.each
output_type: multiple_choice
test_split: test
doc_to_text: "{{question}}"
doc_to_choice: ["c", "d"]
doc_to_target: gold
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1}
"""
METRIC_YAML = "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]\n"
DOCS = """
import json
from pathlib import Path
import datasets
from edited_task_helper import asked

def read(name, data_dir):
    rows = [json.loads(line) for line in Path(__file__).with_name(name).read_text().splitlines()]
    more = Path(data_dir, "extra", "rows.jsonl") if data_dir else Path("none")
    rows += [json.loads(line) for line in more.read_text().splitlines()] if more.is_file() else []
    return datasets.Dataset.from_list([row | {"question": asked(row["question"])} for row in rows])

def load(data_dir=None, **_):
    names = {"test": "data.jsonl", "shots": "shots.jsonl"}
    return datasets.DatasetDict({split: read(name, data_dir) for split, name in names.items()})
"""
PROCESS = "def each(rows):\n    return rows.map(lambda row: row | {'question': 'File: ' + row['question']})\n"
TASK_PLUGIN = """
import json
from pathlib import Path
from adaptive_bench.registry import register
from adaptive_bench.task import Example, Task

HERE = Path(__file__).parent / "task"

def text(request):
    lines = (HERE / f"{request.split}.jsonl").read_text().splitlines()
    return [Example(**json.loads(line)) for line in lines][: request.count]

def task(name, folder, training):
    return Task(name, "", "loglikelihood", HERE.parent / folder, ("acc,none",), 0.5, (0.0, 0.1), training,
                data_folders=("extra",), num_fewshot=1 if training else 0)

register("tasks", "edited")(task("edited", "task", text))
register("tasks", "of_file")(task("of_file", "file_task", None))
"""
PARENT = """
from pydantic import Field
from adaptive_bench import registry
from adaptive_bench.methods.random_skip import RandomSkip, RandomSkipConfig

class ParentConfig(RandomSkipConfig):
    trained: bool = Field(True, description="")
    share_end: float | None = Field(0.1, description="")

@registry.register("methods", "parent")
class Parent(RandomSkip):
    Config = ParentConfig
    salt = 0
"""
METHOD = """
import json
from pathlib import Path
from adaptive_bench.method import Decision, MethodSpec, method_class, uniforms_from
from adaptive_bench.registry import register
from edited_method_helper import share

FACTOR = json.loads(Path(__file__).with_name("factor.json").read_text())

@register("methods", "mine")
class Mine(method_class(MethodSpec.parse("parent"))):
    SALT = 3

    def decide_ahead(self, call):
        keys = [self.seed + self.SALT + self.salt + site for site in range(2 * self.backbone_size[0])]
        skipped = share(self.skip_share) * FACTOR
        return [Decision(keep=keep) for keep in uniforms_from(call.draw_counters, keys) >= skipped]
"""


def rows_of(count: int, start: int = 0, gold: int = 0) -> str:
    return "".join(
        json.dumps({"question": f"Item {number}: {'xyz'[number % 3] * (number + 1)}", "gold": (number + gold) % 2})
        + "\n"
        for number in range(start, start + count)
    )


class World:
    """Everything a run of two methods on two tasks rests on, in one folder, and its output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master = folder.with_name("master")
        self.base_rows: list[dict[str, Any]] = []

    def build(self) -> None:
        write_model_folder(self.folder / "model")
        examples = [{"prompt": f"Item {number}:", "completion": f" {'ab'[number % 2]}"} for number in range(12)]
        lines = [json.dumps(one) + "\n" for one in examples]
        for name, text in {
            "task/edited.yaml": TASK_YAML,
            "task/docs.py": DOCS,
            "task/data.jsonl": rows_of(6),
            "task/shots.jsonl": rows_of(2, start=20),
            "task/train.jsonl": "".join(lines[:8]),
            "task/calibration.jsonl": "".join(lines[8:]),
            "file_task/of_file.yaml": FILE_YAML.replace("WORLD", str(self.folder)),
            "file_task/process.py": PROCESS,
            "shared/metric.yaml": METRIC_YAML,
            "shared/rows.jsonl": rows_of(5, start=7),
            "data/extra/rows.jsonl": rows_of(2, start=30),
            "task_plugin.py": TASK_PLUGIN,
            "parent.py": PARENT,
            "mine.py": METHOD,
            "factor.json": "1.0",
            "lib/edited_task_helper.py": "def asked(text):\n    return text\n",
            "lib/edited_method_helper.py": "def share(value):\n    return value * 1.0\n",
        }.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        self.load()
        self.base_rows = run(self.config(), jobs=1).rows
        run(self.config(**self.local), jobs=1)
        shutil.copytree(self.folder, self.master)

    def restore(self) -> None:
        """As it was, times of files included."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.master, self.folder)
        self.load()

    def load(self) -> None:
        """What a new process of Python would do."""
        registry._registered.clear()
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(str(self.folder)):
                del sys.modules[name]
        for cached in (closure._walked, source._version, lookup._load):
            cached.cache_clear()
        for folder in self.folder.rglob("__pycache__"):
            shutil.rmtree(folder)
        importlib.invalidate_caches()
        for plugin in ("task_plugin.py", "parent.py", "mine.py"):
            registry.load_plugin(self.folder / plugin)

    def config(self, **changes: Any) -> RunConfig:
        values: dict[str, Any] = {
            "methods": "dense,mine",
            "tasks": ("edited", "of_file"),
            "model": str(self.folder / "model"),
            "out": self.folder / "out",
            "levels": (0.0, 0.1),
            "match_on": "tokens",
            "device": "cpu",
            "train": {"steps": 2, "batch_size": 2, "warmup_steps": 1, "max_length": 64, "learning_rate": 0.01},
            "evaluation": {"batch_size": 4, "limit": 8, "calibration_examples": 4, "grid": (0.0, 0.3)},
        }
        for key in ("train", "evaluation"):
            values[key] = values[key] | changes.pop(key, {})
        return RunConfig(**values | changes)

    @property
    def local(self) -> dict[str, Any]:
        """What a run with a folder of local data differs in."""
        return {"data_dir": self.folder / "data", "tasks": ("edited",), "methods": "dense"}

    @property
    def trainings(self) -> dict[str, Path]:
        found = (self.folder / "out" / "records").iterdir()
        return {json.loads((training / "config.json").read_text())["method"]: training for training in found}

    def sweep(self, method: str = "mine", task: str = "edited") -> Path:
        return next((self.trainings[method] / "eval").glob(f"{task}-*"))

    def change(self, name: str, old: str, new: str, *, keep_time: bool = False) -> None:
        self.write(name, (self.folder / name).read_text().replace(old, new, 1), keep_time=keep_time)

    def write(self, name: str, text: str, *, keep_time: bool = False) -> None:
        file = self.folder / name
        before = file.stat()
        assert file.read_text() != text
        file.write_text(text)
        if keep_time:
            assert file.stat().st_size == before.st_size
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in ("seconds", "made_with")} for row in rows]


def measured(config: RunConfig) -> dict[str, Any]:
    """Every point of a run, with its samples, but for times."""
    found: dict[str, Any] = {}
    for sweep in plan(config).sweeps:
        for saving in sweep.finished() or ():
            values = sweep.record.read(f"{saving:g}.json") or {}
            kept = {key: value for key, value in values.items() if "time" not in key and key != "wall_s"}
            found[f"{sweep.folder.name}/{saving:g}"] = kept | {"report": None, "savings": values["savings"]}
    return found


# ---- the edits; each gets the world and gives what the config of the second run differs in

Change = dict[str, Any] | None
EDITS: dict[str, tuple[Callable[[World], Change], str, str]] = {}  # what is done, its kind, what is expected


def edit(name: str, kind: str = "input", expected: str = "right") -> Callable[[Any], Any]:
    """`input`: of what a run rests on, in the same process. `code`: another process follows. `record`: of results."""

    def put(make: Callable[[World], Change]) -> Callable[[World], Change]:
        assert name not in EDITS
        EDITS[name] = make, kind, expected
        return make

    return put


def replaced(
    name: str, file: str, old: str, new: str, kind: str = "input", expected: str = "right", **how: Any
) -> None:
    edit(name, kind, expected)(lambda world: world.change(file, old, new, **how))


def configured(name: str, expected: str = "right", **changes: Any) -> None:
    edit(name, "input", expected)(lambda world: changes)


replaced("documents: a question", "task/data.jsonl", "xx", "vw")
replaced("documents: a right answer", "task/data.jsonl", '"gold": 0', '"gold": 1')
replaced("documents: the same size and time", "task/data.jsonl", '"gold": 1', '"gold": 0', keep_time=True)
replaced("documents: worked examples", "task/shots.jsonl", "Item 20", "Thing 20")
replaced("documents of a file the YAML names", "shared/rows.jsonl", '"gold": 1', '"gold": 0')
replaced(
    "documents of a file the YAML names: size and time kept", "shared/rows.jsonl", "Item 7", "Atom 7", keep_time=True
)
edit("documents: another order")(
    lambda world: world.write(
        "task/data.jsonl", "".join(reversed((world.folder / "task/data.jsonl").read_text().splitlines(keepends=True)))
    )
)
edit("documents: one more")(lambda world: world.write("task/data.jsonl", rows_of(7)))
replaced("template", "task/edited.yaml", "Which letter?", "Say a or b:")
replaced("version in the YAML", "task/edited.yaml", "version: 1", "version: 2")
replaced("number of worked examples in the plugin", "task_plugin.py", "num_fewshot=1", "num_fewshot=0", "code")
replaced(
    "metric in an included YAML elsewhere",
    "shared/metric.yaml",
    "metric: acc",
    "metric: acc_norm",
    expected="refused: .*acc,none|right",
)
replaced("second split in the YAML", "task/edited.yaml", "test_split: test", "test_split: shots")
replaced("code of the documents", "task/docs.py", "row |", "row | {'more': 1} |", "code")
replaced(
    "helper of the documents' code elsewhere", "lib/edited_task_helper.py", "return text", "return text.upper()", "code"
)
replaced(
    "helper of the documents' code, process goes on",
    "lib/edited_task_helper.py",
    "return text",
    "return text.upper()",
    expected="refused: .*edited_task_helper",
)
replaced("code that processes documents", "file_task/process.py", "File: ", "Text: ", "code")
replaced("training text", "task/train.jsonl", "Item 1:", "Thing 1:")
replaced("training text: size and time kept", "task/train.jsonl", "Item 1:", "Atom 1:", keep_time=True)
replaced("calibration text", "task/calibration.jsonl", "Item 9:", "Thing 9:")


@edit("local data: a row")
def _(world: World) -> Change:
    world.change("data/extra/rows.jsonl", "Item 30", "Thing 30")
    return world.local


@edit("local data: size and time kept")
def _(world: World) -> Change:
    world.change("data/extra/rows.jsonl", '"gold": 0', '"gold": 1', keep_time=True)
    return world.local


@edit("local data: file renamed")
def _(world: World) -> Change:
    (world.folder / "data/extra/rows.jsonl").rename(world.folder / "data/extra/other.jsonl")
    return world.local


@edit("local data: folder inside renamed")
def _(world: World) -> Change:
    (world.folder / "data/extra").rename(world.folder / "data/extra2")
    return world.local


def of_json(file: str, change: Callable[[Any], None]) -> Callable[[World], None]:
    def make(world: World) -> None:
        values = json.loads((world.folder / file).read_text())
        change(values)
        (world.folder / file).write_text(json.dumps(values))

    return make


def swap_tokens(values: dict[str, Any]) -> None:
    vocabulary = values["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]


edit("tokenizer: vocabulary")(of_json("model/tokenizer.json", swap_tokens))
edit("tokenizer: settings")(of_json("model/tokenizer_config.json", lambda values: values.update(eos_token="<pad>")))
edit("tokenizer: special tokens")(
    lambda world: (world.folder / "model/special_tokens_map.json").write_text('{"eos_token": "<pad>"}') and None
)
edit("chat template beside the tokenizer")(
    lambda world: (world.folder / "model/chat_template.jinja").write_text("{{ messages[0]['content'] }}") and None
)
edit("generation settings of the model")(
    of_json("model/generation_config.json", lambda values: values.update(eos_token_id=5))
)
edit("model config: rope_theta")(
    of_json(
        "model/config.json",
        lambda values: values.update(rope_theta=17.0, rope_parameters={"rope_type": "default", "rope_theta": 17.0}),
    )
)
edit("model config: norm epsilon")(of_json("model/config.json", lambda values: values.update(rms_norm_eps=0.5)))


@edit("weights: size and time kept")
def other_weights(world: World) -> None:
    file = world.folder / "model/model.safetensors"
    before = file.stat()
    save_file({name: -value for name, value in load_file(file).items()}, file, {"format": "pt"})
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size


replaced("method: a constant", "mine.py", "SALT = 3", "SALT = 4", "code")
replaced("method: a comment", "mine.py", "SALT = 3", "SALT = 3  # chosen", "code")
replaced("method: a constant, process goes on", "mine.py", "SALT = 3", "SALT = 4", expected=r"refused: .*mine\.py")
replaced("method: helper module", "lib/edited_method_helper.py", "1.0", "0.5", "code")
replaced("method: file of numbers beside it", "factor.json", "1.0", "0.5", "code")
replaced("method: base class in another plugin", "parent.py", "salt = 0", "salt = 9", "code")
replaced("method: default of a parameter", "parent.py", "Field(0.1", "Field(0.4", "code")

configured("config: limit", evaluation={"limit": 3})
configured("config: batch size of answers", evaluation={"batch_size": 2})
configured("config: worked examples", evaluation={"num_fewshot": 0})
configured("config: grid", evaluation={"grid": (0.0, 0.2)})
configured("config: calibration examples", evaluation={"calibration_examples": 2})
configured("config: seed", seeds=(2,))
configured("config: steps", train={"steps": 1})
configured("config: learning rate", train={"learning_rate": 0.5})
configured("config: levels", levels=(0.0, 0.2))
configured("config: axis", match_on="net")
configured("config: parameter of a method", methods="dense,mine[share_end=0.3]")


@edit("config: other training tasks", expected="refused: .*of_file")
def _(world: World) -> Change:
    return {"train_on": ("of_file",)}


# ---- of results


def change_file(folder: Path, name: str, change: Callable[[dict[str, Any]], None], *, seal: bool) -> None:
    values = json.loads((folder / name).read_text())
    change(values)
    values.pop("content_sha256", None)
    write_sealed(folder / name, values) if seal else (folder / name).write_text(json.dumps(values))


def halve(values: dict[str, Any]) -> None:
    values["scores"] = {metric: 0.5 * score + 0.01 for metric, score in values["scores"].items()}


def of_record(
    name: str, file: str, change: Callable[[Any], Any], expected: str, seal: bool, *, training: bool = False
) -> None:
    @edit(f"record: {name}, {'sealed again' if seal else 'seal broken'}", "record", expected)
    def _(world: World) -> None:
        change_file(world.trainings["mine"] if training else world.sweep(), file, change, seal=seal)


of_record("score", "0.json", halve, "right", False)
of_record("score", "0.json", halve, "refused: .*made again", True)
of_record("end of the dial", "dial.json", lambda values: values.update(max_saved_tokens=0.1), "right", False)
of_record(
    "end of the dial", "dial.json", lambda values: values.update(max_saved_tokens=0.1), r"refused: .*dial\.json", True
)
of_record("calibration", "behaviour.json", lambda values: values.update(sha256="0"), r"noted: .*behaviour\.json", False)
of_record(
    "what it says of itself",
    "config.json",
    lambda values: values.update(method="dense"),
    r"noted: .*config\.json",
    False,
)
of_record(
    "what it says of itself",
    "config.json",
    lambda values: values.update(method="dense"),
    r"refused: .*config\.json",
    True,
)
of_record(
    "learning rate of a training",
    "config.json",
    lambda values: values["recipe"].update(learning_rate=1.0),
    r"refused: .*config\.json",
    True,
    training=True,
)
of_record("cost", "cost.json", lambda values: values.update(flops=1.0), r"noted: .*cost\.json", False, training=True)
of_record(
    "tokens of the cost",
    "cost.json",
    lambda values: values.update(tokens=1),
    r"refused: .*cost\.json",
    True,
    training=True,
)
of_record("versions", "env.json", lambda values: values.update(torch="1.0"), "noted: .*same versions", True)
of_record("versions", "env.json", lambda values: values.update(torch="1.0"), r"noted: .*env\.json", False)


@edit("record: documents' answers edited", "record", r"refused: .*samples")
def _(world: World) -> None:
    file = world.sweep() / "0.samples.jsonl"
    file.write_text(file.read_text().replace('"doc": 0', '"doc": 9', 1))


@edit("record: documents' answers deleted", "record", "refused: .*documents")
def _(world: World) -> None:
    (world.sweep() / "0.samples.jsonl").unlink()


@edit("record: point deleted", "record")
def _(world: World) -> None:
    (world.sweep() / "0.json").unlink()


@edit("record: said to be done, half its points gone", "record")
def _(world: World) -> None:
    for name in ("0.3.json", "0.3.samples.jsonl"):
        (world.sweep() / name).unlink()


@edit("record: point of another sweep", "record", "refused: .*another|refused: .*belongs to one record")
def _(world: World) -> None:
    for name in ("0.json", "0.samples.jsonl"):
        shutil.copy(world.sweep("dense", "of_file") / name, world.sweep() / name)


@edit("record: sweep of another method", "record", r"refused: .*config\.json")
def _(world: World) -> None:
    target = world.sweep()
    shutil.rmtree(target)
    shutil.copytree(world.sweep("dense"), target)


@edit("record: training under another key", "record", r"refused: .*config\.json")
def _(world: World) -> None:
    dense, mine = world.trainings["dense"], world.trainings["mine"]
    shutil.rmtree(mine)
    dense.rename(mine)


@edit("record: weights of a finished training, one more task asked", "record", "refused: .*changed or is missing")
def _(world: World) -> Change:
    file = world.trainings["mine"] / "checkpoint/backbone/model.safetensors"
    save_file({name: -value for name, value in load_file(file).items()}, file, {"format": "pt"})
    return {"evaluation": {"limit": 2}}


@edit("record: log of a training", "record")
def _(world: World) -> None:
    file = world.trainings["mine"] / "train.jsonl"
    file.write_text(file.read_text().replace('"loss": ', '"loss": 9'))


def of_run(name: str, old: str, new: str) -> None:
    @edit(f"run: {name}", "record")
    def _(world: World) -> None:
        folder = run_folder(world.config())
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))


of_run("table.json", '"score": ', '"score": 9')
of_run("answers.json", "1", "2")
of_run("methods.json", "mine", "other")
of_run("run.json", '"state": "done"', '"state": "partial"')
of_run("manifest.json", '"mine"', '"dense"')


def in_this_process(world: World) -> None:
    """What is patched here holds for jobs of plugins, too, which else have processes of their own."""
    world.patch.setattr("adaptive_bench.jobs.run_groups.has_own_process", lambda job: False)


@edit("versions of a library, one more method", "code", "noted: .*same versions")
def _(world: World) -> Change:
    in_this_process(world)
    original = importlib.metadata.version
    changed = lambda name: "1.0" if name == "transformers" else original(name)  # noqa: E731
    world.patch.setattr("adaptive_bench.model.timing.hardware.version", changed)
    return {"methods": "dense,mine,static_depth"}


@edit("threads, one more method")
def _(world: World) -> Change:
    world.patch.setattr(torch, "get_num_threads", lambda: 7)
    return {"methods": "dense,mine,static_depth"}


@edit("name of the device, one more method", expected="noted: .*same versions")
def _(world: World) -> Change:
    in_this_process(world)
    world.patch.setattr("adaptive_bench.model.timing.hardware.describe_device", lambda name: "another")
    return {"methods": "dense,mine,static_depth"}


def while_running(name: str, make: Callable[[World], Any], expected: str) -> None:
    @edit(f"while it runs: {name}", "code", expected)
    def _(world: World) -> Change:
        train, done = training_work.train, []

        def then(*arguments: Any, **options: Any) -> Any:
            found = train(*arguments, **options)
            if not done:
                done.append(make(world))
            return found

        in_this_process(world)
        world.patch.setattr(training_work, "train", then)
        return {"seeds": (3,), "methods": ("dense", "gateskip")}


while_running(
    "documents", lambda world: world.change("task/data.jsonl", '"gold": 0', '"gold": 1'), "refused: .*its files"
)
while_running("weights", other_weights, "refused: .*planned with")
while_running(
    "training text", lambda world: world.change("task/train.jsonl", "Item 1:", "Thing 1:"), "refused: .*planned with"
)
while_running(
    "helper of the documents' code",
    lambda world: world.change("lib/edited_task_helper.py", "return text", "return text.upper()"),
    "refused: .*edited_task_helper",
)


def outcome(world: World, name: str) -> str:
    """What came of an edit: right, refused or noted with the message, or what must not be."""
    make, kind, _ = EDITS[name]
    world.restore()
    plan(world.config())  # the process has read everything before
    for task in ("edited", "of_file"):
        lookup.load_task(lookup.find_task(task), None, None)
    with pytest.MonkeyPatch.context() as world.patch:
        config = world.config(**(make(world) or {}))
        if kind == "code":
            world.load()
        try:
            found = run(config, jobs=1)
        except Defect as error:
            return f"DEFECT: {error}"
        except AdaptiveBenchError as error:
            return f"refused: {error}"
        if found.failures:
            return f"refused: {found.failures[0]}"
        fresh = config.model_copy(update={"out": world.folder / "fresh"})
        is_base = kind == "record" and config == world.config()
        kept = measured(config)
        world.load()  # the other table is made by a process that knows of nothing earlier
        world.patch.setattr(datasets.config, "HF_DATASETS_CACHE", world.folder / "cache")
        same = plain(found.rows) == plain(world.base_rows if is_base else run(fresh, jobs=1).rows)
        same = same and (is_base or kept == measured(fresh))
    said = [text for text in found.warnings if re.search("changed since|same versions", text)]
    if said:
        return f"noted: {said[0]}"
    return "right" if same else "OLD NUMBER KEPT"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("edits") / "world"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_registered", {})
        patch.syspath_prepend(folder / "lib")
        made = World(folder)
        made.build()
        yield made


@pytest.mark.parametrize("name", list(EDITS))
def test_an_edit_is_right_or_noticed(world: World, name: str) -> None:
    assert re.match(EDITS[name][2], outcome(world, name), re.DOTALL)


def test_a_table_that_was_edited_is_not_read(world: World) -> None:
    EDITS["run: table.json"][0](world)
    folder = run_folder(world.config())
    with pytest.raises(AdaptiveBenchError, match="changed since"):
        read_table(folder / "table.json")


if __name__ == "__main__":
    import tempfile

    home = Path(tempfile.mkdtemp()) / "world"
    sys.path.insert(0, str(home / "lib"))
    here = World(home)
    here.build()
    for number, edited in enumerate(EDITS, 1):
        if len(sys.argv) < 2 or re.search(sys.argv[1], edited):
            try:
                told = outcome(here, edited)
            except Exception as error:  # noqa: BLE001 - a crash is what is looked for
                told = f"CRASH: {type(error).__name__}: {error}"
            good = "" if re.match(EDITS[edited][2], told, re.DOTALL) else " <- UNEXPECTED"
            print(f"| {number} | {edited} | {told[:110]} |{good}", flush=True)
