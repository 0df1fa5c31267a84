"""A run of two methods on two tasks, everything it rests on in one folder, to be edited between two runs."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from model_folder import write_model_folder
from safetensors.torch import load_file, save_file

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.evaluation import loading
from adaptive_bench.store import keys

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
    return Task(name, "", "loglikelihood", HERE.parent / folder, ("acc,none",), 0.5, training,
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
    """Everything a run of two methods on two tasks rests on, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master = folder.with_name("master")

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
            "task/edited_task_helper.py": "def asked(text):\n    return text\n",
            "edited_method_helper.py": "def share(value):\n    return value * 1.0\n",
        }.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        self.load()
        shutil.copytree(self.folder, self.master)

    def restore(self) -> None:
        """As it was, times of files included."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.master, self.folder)
        self.load()

    def load(self) -> None:
        """What a new process of Python would do."""
        registry._registered.clear()
        self.unload()
        keys._loaded.clear()
        for cached in (keys._files, keys._mentioned, loading._load):
            cached.cache_clear()
        for folder in self.folder.rglob("__pycache__"):
            shutil.rmtree(folder)
        importlib.invalidate_caches()
        for plugin in ("task_plugin.py", "parent.py", "mine.py"):
            registry.load_plugin(self.folder / plugin)

    def unload(self) -> None:
        """Forget its code: that of another world has the same names."""
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(str(self.folder)):
                del sys.modules[name]

    def config(self, **changes: Any) -> RunConfig:
        values: dict[str, Any] = {
            "methods": "dense,mine",
            "tasks": ("edited", "of_file"),
            "model": str(self.folder / "model"),
            "out": self.folder / "out",
            "levels": (0.0, 0.3),
            "match_on": "tokens",
            "device": "cpu",
            "train": {"steps": 2, "batch_size": 2, "warmup_steps": 1, "max_length": 64, "learning_rate": 0.01},
            "evaluation": {"batch_size": 4, "limit": 8, "calibration_examples": 4, "closeness": 0.9},
        }
        for key in ("train", "evaluation"):
            values[key] = values[key] | changes.pop(key, {})
        return RunConfig(**values | changes)

    @property
    def local(self) -> dict[str, Any]:
        """What a run with a folder of local data differs in."""
        return {"data_dir": self.folder / "data", "tasks": ("edited",), "methods": "dense"}

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


def other_weights(world: World) -> None:
    file = world.folder / "model/model.safetensors"
    before = file.stat()
    save_file({name: -value for name, value in load_file(file).items()}, file, {"format": "pt"})
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
