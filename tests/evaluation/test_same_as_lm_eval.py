"""Untrained `dense` gets the scores of lm-eval's own `hf` model, document by document, on real models and data.

Stock lm-eval reads its own YAML files here, pointed at copies of the local files by `datasets`' own JSON reader:
nothing of this package takes part. The local HellaSwag has no training split; rows of its validation split stand in for
one.
"""

import json
import os
from pathlib import Path

import pytest

SHARED = Path(os.environ["ADAPTIVE_BENCH_SHARED"])
MODELS = ("tinyllamas-stories260K", "tinystories-llama-3M")
# Name here; name and folder in lm-eval; folder of the data, its splits.
TASKS = {
    "piqa": ("piqa", "piqa", "piqa", ("train", "validation")),
    "winogrande": ("winogrande", "winogrande", "winogrande", ("train", "validation")),
    "hellaswag": ("hellaswag", "hellaswag", "hellaswag", ("train", "validation")),
    "openbookqa": ("openbookqa", "openbookqa", "openbookqa", ("train", "validation", "test")),
    "lambada": ("lambada_openai", "lambada", "lambada", ("test",)),
    "commonsense_qa": ("commonsense_qa", "commonsense_qa", "commonsense_qa", ("train", "validation")),
    "mmlu_stem": ("mmlu_stem", "mmlu/default", "mmlu", ("dev", "validation", "test")),
}
DOCUMENTS = 19  # one of each subject of mmlu_stem
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the real models and data are not beside the repository")


def lay_out(folder):
    """A data folder with every split that the tasks name."""
    from adaptive_bench.data import read_lines

    for name in {data for *_, data, _ in TASKS.values()}:
        (folder / name).mkdir(parents=True)
        for file in (SHARED / "data" / name).glob("*.jsonl*"):
            (folder / name / file.name).symlink_to(file)
    rows = read_lines(SHARED / "data" / "hellaswag" / "validation.jsonl.gz")
    (folder / "hellaswag" / "validation.jsonl.gz").unlink()
    for split, some in (("train", rows[1000:2000]), ("validation", rows[:1000])):
        (folder / "hellaswag" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    return folder


def stock(model, task, shots, documents, data, scratch):
    """lm-eval's samples by the text of their question."""
    from lm_eval import simple_evaluate, tasks
    from lm_eval.tasks import TaskManager

    name, shipped_in, folder, splits = TASKS[task]
    shipped = TaskManager(include_path=str(Path(tasks.__file__).parent / shipped_in), include_defaults=False).task_index
    members = sorted(shipped["mmlu_stem_tasks"].tags) if task == "mmlu_stem" else [name]
    scratch.mkdir(parents=True)
    for member in members:
        files = {split: str(next((data / folder).glob(f"{split}.jsonl*"))) for split in splits}
        if task == "mmlu_stem":
            files = {split: _subject(path, member.removeprefix("mmlu_"), scratch) for split, path in files.items()}
        content = {"include": str(shipped[member].yaml_path), "dataset_path": "json", "dataset_name": None}
        content |= {"dataset_kwargs": {"data_files": files}}
        (scratch / f"{member}.yaml").write_text(json.dumps(content))  # JSON is YAML
    found = simple_evaluate(
        model="hf",
        model_args={"pretrained": model, "dtype": "float32"},
        tasks=list(members),
        task_manager=TaskManager(include_path=str(scratch), include_defaults=False),
        num_fewshot=shots,
        limit=documents // len(members),
        batch_size=16,
        device="cpu",
        bootstrap_iters=0,
        verbosity="ERROR",
    )
    return {_question(sample["doc"]): sample for samples in found["samples"].values() for sample in samples}


def ours(model, task, shots, documents, data):
    """Our samples, with the document of each."""
    from adaptive_bench.evaluation.evaluate import evaluate
    from adaptive_bench.evaluation.loading import load_task
    from adaptive_bench.evaluation.lookup import find_task
    from adaptive_bench.model import AdaptiveModel
    from adaptive_bench.runs.backbone_source import find_backbone

    source = find_backbone(model)
    adaptive = AdaptiveModel.build(source.load_model(), "dense").eval()
    evaluation, samples = evaluate(
        adaptive,
        source.load_tokenizer(),
        task,
        data_dir=data,
        documents=range(documents),  # the first ones, as lm-eval's own limit
        num_fewshot=shots,
        batch_size=16,
    )
    asked = load_task(find_task(task), data, shots).eval_docs
    return [(_question(asked[sample.doc]), sample) for sample in samples], dict(evaluation.scores)


def compare(model, task, shots, documents, data, scratch):
    """Documents whose scores differ, and the mean scores."""
    theirs = stock(model, task, shots, documents, data, scratch)
    mine, scores = ours(model, task, shots, documents, data)
    assert {question for question, _ in mine} == set(theirs)
    different = []
    for question, sample in mine:
        for key, value in sample.scores.items():
            wanted = float(theirs[question][key.partition(",")[0]])
            # A perplexity is made of log-likelihoods, which are sums taken in another order.
            if value != wanted and not (key.startswith("perplexity") and abs(value - wanted) < 1e-3):
                different.append((question[:60], key, value, wanted))
    return {"documents": len(mine), "different": different, "scores": scores}


def _question(document):
    return json.dumps({key: document[key] for key in sorted(document)}, default=str)


def _subject(path, subject, scratch):
    from adaptive_bench.data import read_lines

    target = scratch / f"{subject}-{Path(path).name.partition('.')[0]}.jsonl"
    rows = [row for row in read_lines(Path(path)) if row["subject"] == subject]
    target.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(target)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return lay_out(tmp_path_factory.mktemp("data") / "sets")


@pytest.mark.parametrize(
    ("task", "shots"),
    [
        *((task, 0) for task in TASKS if task != "mmlu_stem"),
        ("mmlu_stem", 5),
        *(pytest.param(*row, marks=pytest.mark.slow) for row in [("mmlu_stem", 0), ("piqa", 5), ("hellaswag", 5)]),
    ],
)
def test_scores_are_those_of_lm_eval(task, shots, data, tmp_path):
    model = MODELS[(len(task) + shots) % len(MODELS)]
    found = compare(str(SHARED / "models" / model), task, shots, DOCUMENTS, data, tmp_path / "stock")
    assert found["documents"] == DOCUMENTS
    assert found["different"] == []


@pytest.mark.real
@pytest.mark.parametrize("task", ["hellaswag", "piqa", "lambada", "commonsense_qa"])
def test_scores_of_a_real_model_are_those_of_lm_eval(task, data, tmp_path, smollm2):
    found = compare(str(smollm2), task, 0, 50, data, tmp_path / "stock")
    assert found["documents"] == 50
    assert found["different"] == []
