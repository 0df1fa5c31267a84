"""The paper's other tasks on the real files: MMLU, PIQA, translation, and what lm-eval ships."""

import json
import os
import re
from pathlib import Path

import pytest

from adaptive_bench import registry
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError
from adaptive_bench.evaluation.lookup import expand_tasks, find_task, load_task
from adaptive_bench.task import ExampleRequest, Task
from adaptive_bench.tasks.csqa.task import CSQA_NEMOTRON
from adaptive_bench.tasks.gsm8k.task import GSM8K_NEMOTRON

SHARED = Path(os.environ["ADAPTIVE_BENCH_SHARED"]) / "data"
real_files = pytest.mark.skipif(not SHARED.is_dir(), reason="the real data files are not beside the repository")
CSQA_ROW = {
    "question": "What is hot?",
    "choices": {"label": list("ABCDE"), "text": ["ice", "fire", "sand", "wood", "rain"]},
    "answerKey": "B",
}


def _write(folder, split, rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("task", "folder", "split", "row", "said"),
    [
        ("csqa_ll", "commonsense_qa", "validation", {**CSQA_ROW, "id": "1", "answerKey": "Z"}, "letters, got 'Z'"),
        ("piqa_gen", "piqa", "validation", {"goal": "g", "sol1": "a", "sol2": "b", "label": -1}, "from 0 on, got -1"),
        ("mmlu_gen", "mmlu", "test", {"question": "q", "subject": "s", "choices": list("abcd"), "answer": 4}, "got 4"),
    ],
)
def test_an_answer_that_is_none_of_the_options_is_refused(tmp_path, task, folder, split, row, said):
    for name in ("train", "validation", "test"):
        _write(tmp_path / folder, name, [row])
    with pytest.raises(AdaptiveBenchError, match=re.escape(said)):
        load_task(find_task(task), tmp_path, 0)


@real_files
@pytest.mark.parametrize(
    ("name", "documents"),
    [
        ("mmlu_stem", 3153),
        ("mmlu_gen", 14042),
        ("piqa", 1838),
        ("piqa_gen", 1838),
        ("openbookqa", 500),
        ("winogrande", 1267),
        ("lambada", 5153),
        ("wmt16_en_ro", 1999),
        ("mmlu_virology", 166),
        ("perplexity:novels", 563),
    ],
)
def test_every_task_finds_its_local_files(name, documents):
    assert len(load_task(find_task(name), SHARED, 0).eval_docs) == documents


@real_files
@pytest.mark.parametrize("subject", ["abstract_algebra", "high_school_european_history", "virology"])
@pytest.mark.parametrize("shots", [0, 5])
def test_mmlu_asks_what_lm_evals_subjects_ask(subject, shots):
    ours, stock = load_task(find_task("mmlu"), SHARED, shots), load_task(find_task(f"mmlu_{subject}"), SHARED, shots)
    mine = [document for document in ours.eval_docs if document["subject"] == subject]
    assert len(mine) == len(stock.eval_docs)
    for one, other in list(zip(mine, stock.eval_docs, strict=True))[:5]:
        assert ours.fewshot_context(one, shots) == stock.fewshot_context(other, shots)
        assert ours.doc_to_target(one) == stock.doc_to_target(other)


@real_files
def test_translation_is_scored_by_sacrebleu_with_its_signature():
    signatures = load_task(find_task("wmt16_en_ro"), SHARED, None).config.metadata["signatures"]
    assert signatures["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "chrf" in signatures


@pytest.mark.parametrize("name", sorted(set(registry.names("tasks"))))
def test_every_task_tells_where_its_documents_are_from(name):
    thing = registry.get("tasks", name)
    if isinstance(thing, Task) and not name.startswith("nano"):
        assert thing.source and thing.licence
        assert bool(thing.text_source) == (thing.training is not None)
    for member in expand_tasks([name]):
        assert member == "perplexity" or find_task(member).metrics


def test_the_papers_traces_lose_their_tags_and_keep_the_data_sets_answer(tmp_path):
    _write(tmp_path / "gsm8k", "train", [{"question": "1?", "answer": "#### 1"}])
    assert GSM8K_NEMOTRON.training is not None
    with pytest.raises(EnvironmentProblem, match="multi-domain-reasoning/gsm8k, but there is none"):
        GSM8K_NEMOTRON.training(ExampleRequest("train", 1, 1, tmp_path))  # never replaced in silence
    traces = tmp_path / "multi-domain-reasoning"
    trace = "<reasoning>\nThink {}.\n</reasoning>"
    rows = [
        {"question": f"{n}?", "answer": "By hand.\n#### 1,500", "reasoning_nemotron_70B": trace.format(n)}
        for n in range(20)
    ]
    _write(traces / "gsm8k", "train", [*rows, rows[0] | {"question": "empty", "reasoning_nemotron_70B": ""}])
    _write(traces / "commonsense_qa", "train", [CSQA_ROW | row | {"question": row["question"]} for row in rows])
    for task, answer in ((GSM8K_NEMOTRON, "1,500"), (CSQA_NEMOTRON, "B")):
        found = [*task.training(ExampleRequest("train", 99, 1, tmp_path))]
        assert found and all(example.completion.startswith(" Think ") for example in found)
        assert all(example.completion.endswith(f".\n#### {answer}") for example in found)
    assert "Nemotron-70B" in GSM8K_NEMOTRON.text_source


@real_files
@pytest.mark.parametrize(
    ("name", "documents"),
    [("gsm8k", 241), ("piqa", 16113), ("piqa_gen", None), ("openbookqa", 500)],
)
def test_choices_are_made_on_other_documents(name, documents):
    chosen_on = load_task(find_task(name), SHARED, 0, "validation")
    tested = load_task(find_task(name), SHARED, 0)
    asked = [{json.dumps(document) for document in task.eval_docs} for task in (chosen_on, tested)]
    assert documents is None or len(chosen_on.eval_docs) == documents
    assert len(asked[0] & asked[1]) <= 1  # one row of PIQA is in both of its splits


@real_files
def test_choices_need_their_split():
    with pytest.raises(EnvironmentProblem, match=r"'hellaswag' are drawn from the split 'train'.*--num-fewshot 0"):
        load_task(find_task("hellaswag"), SHARED, 5)
    with pytest.raises(EnvironmentProblem, match=r"Validation documents of 'hellaswag' are those of the split 'train'"):
        load_task(find_task("hellaswag"), SHARED, 0, "validation")
    with pytest.raises(UsageError, match="'lambada' has none besides those it is tested on"):
        load_task(find_task("lambada"), SHARED, 0, "validation")
