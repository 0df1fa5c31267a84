"""Files that plugins read and that no key names: a result does not outlive them."""

import json
from pathlib import Path

import pytest

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.progress import SilentReporter
from adaptive_bench.runs import run
from adaptive_bench.runs.planning.files_read import check_unchanged, files_read
from adaptive_bench.runs.planning.plan import plan
from adaptive_bench.store.digest import file_digest

pytestmark = pytest.mark.slow

METHOD = """
import json
from pathlib import Path
from adaptive_bench.method import Decision, DialSpec, Method, register

@register("methods", "reader")
class Reader(Method):
    \"\"\"Skips the first tokens of every twenty.\"\"\"

    @property
    def dial(self):
        return DialSpec("skipped_share", minimum=0.0, maximum=1.0, skip_nothing=0.0)

    def dial_for(self, saved_tokens):
        return saved_tokens

    def decide(self, view):
        shift = json.loads(Path(__file__).with_suffix(".json").read_text())
        return Decision(keep=(view.call.positions + shift) % 20 >= 20 * self.value)
"""
TASK = """
from pathlib import Path
from adaptive_bench.registry import register
from adaptive_bench.task import Task

folder = Path(__file__).parent / "small"
register("tasks", "small")(
    Task("small", "", "loglikelihood", folder, ("acc,none",), 0.0, (0.0, 0.1), None, data_folders=())
)
"""
DOCUMENTS = """
import json
from pathlib import Path
import datasets

FOLDER = Path(__file__).parents[1] / "data"

def load(**_):
    rows = [json.loads(line) for name in ("rows",) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]
    return datasets.DatasetDict({"test": datasets.Dataset.from_list(rows)})
"""
YAML = """
task: small
output_type: multiple_choice
custom_dataset: !function docs.load
test_split: test
doc_to_text: "{{question}} a or b?"
doc_to_choice: ["a", "b"]
doc_to_target: gold
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1}
"""


@pytest.fixture(autouse=True)
def own_registrations(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


@pytest.fixture
def said():
    class Said(SilentReporter):
        def __init__(self):
            self.lines = []

        def line(self, text):
            self.lines.append(text)

    return Said()


@pytest.fixture
def reader(tmp_path):
    (tmp_path / "reader.py").write_text(METHOD)
    data = tmp_path / "reader.json"
    data.write_text("0")
    registry.load_plugin(tmp_path / "reader.py")
    return data


@pytest.fixture
def small(tmp_path):
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "docs.py").write_text(DOCUMENTS)
    (tmp_path / "small" / "small.yaml").write_text(YAML)
    (tmp_path / "tpl.py").write_text(TASK)
    data = tmp_path / "data" / "rows.jsonl"
    data.parent.mkdir()
    answer_with(data, 0)
    registry.load_plugin(tmp_path / "tpl.py")
    return data


def answer_with(data: Path, gold: int) -> None:
    rows = [{"question": f"q{number}", "gold": (number + gold) % 2} for number in range(4)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))


def asked(config):
    return {sweep.task: sweep.record for sweep in plan(config).sweeps}


def test_new_answers_in_a_file_that_a_task_reads_are_asked_anew(config_of, small, said):
    config = config_of("dense", tasks=("small", "nano_qa_ll"), levels=(0.0,), train={"steps": 0})
    first = run(config, said).rows
    records = asked(config)
    assert records["small"].files_read() == {"task small": {"../data/rows.jsonl": file_digest(small)}}
    assert not records["nano_qa_ll"].files_read() and not plan(config).trainings[0].record.files_read()
    dates = {task: (record.folder / "0.json").stat().st_mtime_ns for task, record in records.items()}
    run(config, said)
    assert not any("outdated" in line for line in said.lines), "what stayed is used again"
    answer_with(small, 1)
    second = run(config, said).rows
    (line,) = [line for line in said.lines if "outdated" in line]
    assert str(small) in line
    scores = [{row["score"] for row in rows if row["task"] == "small"} for rows in (first, second)]
    assert {round(1.0 - score, 6) for score in scores[0]} == {round(score, 6) for score in scores[1]}
    assert dates["nano_qa_ll"] == (records["nano_qa_ll"].folder / "0.json").stat().st_mtime_ns
    assert (config.out / "outdated" / records["small"].folder.relative_to(config.out / "records") / "0.json").is_file()
    small.unlink()
    with pytest.raises(EnvironmentProblem, match="small"):
        run(config, said)


def test_what_changes_while_it_is_asked_is_not_kept(config_of, small):
    config = config_of("dense", tasks=("small",), levels=(0.0,), train={"steps": 0})
    run(config)
    answer_with(small, 1)
    with pytest.raises(EnvironmentProblem, match=r"rows\.jsonl.* changed meanwhile"):
        check_unchanged(files_read(config, ("dense",), ("small",)))


def test_a_file_that_a_method_reads_is_part_of_its_results(config_of, reader, said):
    config = config_of("reader,dense", levels=(0.0, 0.3), match_on="tokens")
    assert not run(config, said).failures
    read = {"method reader": {"reader.json": file_digest(reader)}}
    found = {str(sweep.spec): sweep.record.files_read() for sweep in plan(config).sweeps}
    assert found == {"reader": read, "dense": {}}
    assert {str(training.spec): training.record.files_read() for training in plan(config).trainings} == {
        "reader": read,
        "dense": {},
    }
    reader.write_text("7")
    assert not run(config, said).failures
    lines = [line for line in said.lines if "outdated" in line]
    assert lines and all(str(reader) in line and "reader" in line for line in lines)
    assert not plan(config).untrained
