"""`adaptive-bench speculate` on a tiny model and a task of a plugin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from adaptive_bench import registry, speculation
from adaptive_bench.cli.speculate_table import shown
from adaptive_bench.model import AdaptiveModel

PLUGIN = """
from pathlib import Path

from adaptive_bench.method import register
from adaptive_bench.task import Task

HERE = Path(__file__).parent
KNOWN = {"toy_add": ("generative", "exact_match,none"), "toy_text": ("loglikelihood", "bits_per_byte,none")}
for name, (kind, metric) in KNOWN.items():
    known = Task(name, "toy", kind, HERE / name, (metric,), 0.0, None, data_folders=())
    register("tasks", name)(known)
"""
DOCS = """
import datasets

def load(**_):
    return {"test": datasets.Dataset.from_list([{"q": f"{n} + 1?", "a": str(n + 1)} for n in range(5, 15)])}
"""
COMMON = """
task: {name}
custom_dataset: !function docs.load
test_split: test
metadata: {{version: 1.0}}
"""
ADD = """
output_type: generate_until
doc_to_text: "{{q}}="
doc_to_target: "{{a}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 4, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
TEXT = """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{q}} {{a}}"
metric_list: [{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}]
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    for name, part in (("toy_add", ADD), ("toy_text", TEXT)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "docs.py").write_text(DOCS)
        (tmp_path / name / f"{name}.yaml").write_text(COMMON.format(name=name) + part)
    (tmp_path / "plugin.py").write_text(PLUGIN)
    return tmp_path / "plugin.py"


@pytest.fixture
def speculate(command, model_folder, plugin):
    """`speculate(...)`: the command on the tiny model, or on `model=`."""

    def run(*more, model=model_folder, tasks="toy_add"):
        small = ("--limit", "4", "--max-new-tokens", "6", "--rounds", "1", "--batch", "1,3", "--device", "cpu")
        given = dict(zip(small[::2], small[1::2], strict=True)) | dict(zip(more[::2], more[1::2], strict=True))
        options = [part for pair in given.items() for part in pair if part is not None]
        return command("speculate", str(model), "--tasks", tasks, "--plugin", str(plugin), *options)

    return run


def test_the_table_and_the_record(speculate, model_folder, tmp_path):
    found = speculate("--savings", "0.5", "-o", str(tmp_path / "record.json"))
    assert found.exit_code == 0, found.stderr
    assert [line for line in found.stdout.splitlines() if len(line) > 80 and "record.json" not in line] == []
    assert found.stdout.count("4/4") == 2
    record = json.loads((tmp_path / "record.json").read_bytes())
    assert (record["model"], record["texts"]) == (model_folder.name, 4)
    assert [batch["batch"] for batch in record["batches"]] == [1, 3]
    for batch in record["batches"]:
        (point,) = batch["points"]
        assert point["saving"] == 0.5 and point["dial"] == 1 and point["equal_texts"] == 4
        assert point["draft_saved"]["tokens"] == pytest.approx(0.5)


def test_prompts_are_those_of_the_task(speculate, model_folder):
    """Byte tokens: as many as the texts have characters; the plain model writes what greedy decoding is."""
    record = json.loads(speculate("--json", None, "--limit", "3").stdout)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(model_folder), AutoTokenizer.from_pretrained(model_folder)
    expected = 0
    for number in (5, 6, 7):
        ids = tokenizer(f"{number} + 1?=", return_tensors="pt").input_ids
        expected += model.generate(ids, max_new_tokens=6, do_sample=False).shape[1] - ids.shape[1]
    assert record["batches"][0]["greedy"]["tokens"] == expected
    assert record["shortened_prompts"] == 0
    record = json.loads(speculate("--json", None, "--max-new-tokens", "508", "--limit", "3", "--batch", "1").stdout)
    assert record["shortened_prompts"] == 3  # 4 tokens are left for prompts of 7


@pytest.mark.parametrize("spec", ["layerskip", "random_skip"])
def test_a_saved_model_drafts_with_its_method(spec, speculate, model_folder, tmp_path):
    tokenizer, backbone = (
        AutoTokenizer.from_pretrained(model_folder),
        AutoModelForCausalLM.from_pretrained(model_folder),
    )
    AdaptiveModel.build(backbone, spec, seed=3).save_pretrained(tmp_path / "saved", tokenizer)
    found = speculate("--json", None, "--savings", "0.5", model=tmp_path / "saved")
    assert found.exit_code == 0, found.stderr
    record = json.loads(found.stdout)
    assert (record["model"], record["method"]) == ("saved", spec)
    assert [point["equal_texts"] for batch in record["batches"] for point in batch["points"]] == [4, 4]


def test_a_method_of_prompts_alone_drafts_nothing(speculate, model_folder, tmp_path):
    backbone = AutoModelForCausalLM.from_pretrained(model_folder)
    model = AdaptiveModel.build(backbone, "dash_halting[start=0]", seed=3)
    model.save_pretrained(tmp_path / "saved", AutoTokenizer.from_pretrained(model_folder))
    found = speculate(model=tmp_path / "saved")
    assert found.exit_code == 2 and "skips in prompts alone" in " ".join(found.stderr.split())


def test_a_difference_is_said_in_words():
    speed = {"tokens_per_s": {"median": 10.0}, "bytes_per_token": 2e6, "flops_per_token": None}
    tie = {"text": 1, "position": 2, "greedy": 5, "speculative": 6, "gap": -1e-7, "bound": 2e-6, "near_tie": True}
    ended = tie | {"text": 2, "greedy": None, "gap": None, "bound": None, "near_tie": False}
    point = {
        "saving": 0.25, "draft_saved": {"tokens": 0.2}, "acceptance": 0.5, "tokens_per_verification": 2.0,
        "speedup": {"median": 0.8}, "equal_texts": 2, "differences": [tie, ended], **speed,
    }  # fmt: skip
    faster = point | {"speedup": {"median": 1.1}, "differences": []}
    record = {
        "model": "m", "method": "mod", "texts": 4, "shortened_prompts": 0,
        "settings": {"drafts": 3, "tasks": ["toy"], "new": 9},
        "environment": {"device_name": "cpu", "threads": 1, "precision": "float32"},
        "batches": [{"batch": 1, "greedy": speed, "points": [point, faster]}],
    }  # fmt: skip
    text = " ".join(shown(record).split())
    assert "Draft saving 20.0 %, prompt 1" in text and "25.0" not in text
    assert "prompt 1: differs from greedy at new token 3" in text
    assert "logits of 5 and 6 are 1.00e-07 apart; rounding explains up to 2.00e-06: a near-tie." in text
    assert "prompt 2: differs from greedy at new token 3, where one of the two has ended: a defect." in text


def test_a_defect_ends_with_exit_code_1(speculate, monkeypatch):
    whole = speculation.self_speculate

    def broken(*arguments, **more):
        found = whole(*arguments, **more)
        found.tokens[0].append(3)
        return found

    monkeypatch.setattr(speculation, "self_speculate", broken)
    found = speculate()
    assert found.exit_code == 1 and "a defect" in found.stdout


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--precision", "fp8"), "--precision is fp32 or bf16, got 'fp8'"),
        (("--method", "gateskip"), "calibrated on held-out training text"),
        (("--batch", "8"), "--limit 4 has 4. Raise --limit or lower --batch"),
        (("--max-new-tokens", "512"), "leave room for a prompt in the context of 512 tokens"),
    ],
)
def test_mistakes(more, message, speculate):
    found = speculate(*more)
    assert found.exit_code == 2 and message in " ".join(found.stderr.split())


def test_tasks_without_prompts(speculate):
    found = speculate(tasks="toy_text")
    assert found.exit_code == 2 and "likelihood of whole texts" in " ".join(found.stderr.split())
    found = speculate(tasks="toy_addd")
    assert found.exit_code == 2 and "Did you mean 'toy_add'?" in " ".join(found.stderr.split())


def test_a_run_is_named_as_everywhere(speculate):
    found = speculate(model="last")
    assert found.exit_code == 2 and "Give `adaptive-bench run` first" in " ".join(found.stderr.split())
