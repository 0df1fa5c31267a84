"""What the tasks of this distribution are: how each is defined, what it asks and teaches, and how it scores answers.

Those are right, wrong or none at all. Documents are made up, so that no data is needed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from lm_eval import evaluator
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.tasks._yaml_loader import load_yaml

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED, samples_of
from adaptive_bench.evaluation.loading import load_task, quiet
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.store.evaluation import Sample
from adaptive_bench.task import ExampleRequest, OpenTask, Task, TaskGroup
from adaptive_bench.tasks import answers

NANO = ("nano_math", "nano_qa", "nano_qa_ll", "nano_text")
WITH_DATA = (
    *("gsm8k", "gsm8k_nemotron", "csqa", "csqa_nemotron", "csqa_ll", "mmlu", "mmlu_stem", "mmlu_gen", "piqa_gen"),
    *("wmt16_en_ro", "perplexity:corpus"),
)
_ROWS = 40
# What a model may write where the answer is `{a}`: in the form that is asked for, in others, wrong, and nothing.
_NUMBERS = (
    *("So.\n#### {a}", " {a}", "#### {a}.00", "#### ${a}.", "####\n{a}", "#### {a} eggs, not 7", "#### -{a}"),
    *("#### {a}1", "The answer is {a}, not 7", "#### 7\n#### {a}", "no number", "", "####", "7 - {a}", "#### 1,0{a}"),
    "{a},000.50",
)
_LETTERS = (
    *("It burns.\n#### {a}", "#### ({a})", "#### **{l}**", "#### {a}. fire", "####\n{a}", "#### Z", "#### A", "{a}"),
    *("It must be ({a}).", "A cat sat", "A is right", "I'm {a} or Z", "{a}? No: A", "", "#### ", "{l}", "A because"),
    "C#",
)
# Words and signs around an answer, each with every way to read it.
_BEFORE = ("", "#### ", "It is ", "I'm ", "(", "**", '"', "-", "$", "-$", "a", "7 ", "7 - ")
_AFTER = (
    *("", ".", ")", "?", "'s", "%", "b", "0", ",000", ",0003", ".50"),
    *(" is", " was", " because", " since", " cat", " B"),
)


def of_answers() -> dict[str, list[str]]:
    """What is read of a letter and of a number between some words and signs."""
    found = {}
    for before, after in itertools.product(_BEFORE, _AFTER):
        letter, number = (f"{before}{answer}{after}" for answer in "A3")
        found[f"{before}_{after}"] = [
            answers.letter_after_mark(letter, "ABC"),
            answers.last_letter(letter, "ABC"),
            answers.number_after_mark(number),
            answers.last_number(number),
        ]
    return found


def definitions() -> dict[str, Any]:
    """By registered name what a task, or group of tasks, resolves to; of YAML of this distribution what it says with
    all that it includes.
    """
    found: dict[str, Any] = {}
    for name in registry.names("tasks"):
        thing = registry.get("tasks", name)
        if registry.is_foreign("tasks", name):
            continue
        if isinstance(thing, TaskGroup):
            found[name] = list(thing.members)
        else:
            found[name] = _definition(thing.make("corpus") if isinstance(thing, OpenTask) else thing)
    return found


def _definition(task: Task) -> dict[str, Any]:
    plain = {one.name: getattr(task, one.name) for one in fields(Task)}
    for text in ("description", "licence", "source", "text_source"):  # for the reader
        del plain[text]
    plain["folder"] = task.folder.name
    plain["training"] = None if task.training is None else _name(task.training)
    plain["other_files"] = sorted(path.name for path in task.other_files)
    harness = (task.harness_name or task.name).partition(":")[0]
    for file in task.folder.glob("*.yaml") if "lm_eval" not in task.folder.parts else ():
        says = load_yaml(file, resolve_func=False, recursive=True)
        if says.get("task") == harness:
            # Functions are named with the folder of their file, which lies elsewhere on other machines.
            text = json.dumps(says, default=str).replace(f"{task.folder.parent}/", "")
            plain["yaml"] = json.loads(text)
    plain["chance"] = str(task.chance)
    found: dict[str, Any] = json.loads(json.dumps(plain, default=str))
    return found


def _name(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)
    return f"{inner.__module__}.{inner.__qualname__}"


def of_task(name: str, data: Path | None) -> dict[str, Any]:
    """What a task asks and teaches, and what it makes of answers.

    Args:
        data: Folder that `write_data` filled, of tasks that need some.
    """
    task = find_task(name)
    loaded = load_task(task, data, None)
    texts = _LETTERS if "letters" in loaded.eval_docs[0] else _NUMBERS
    parrot = _Parrot(texts)
    results = _asked(name, loaded, parrot, len(texts))
    samples = samples_of(results["samples"][name], task)
    with_shots = []
    if data is not None and task.kind == "generative":
        shown = load_task(task, data, 2)
        shown.set_fewshot_seed(FEWSHOT_SEED)
        with_shots = _asked(name, shown, _Parrot(["", ""]), 2)["samples"][name]
    taught = {
        split: [[one.prompt, one.completion] for one in task.training(ExampleRequest(split, 8, 1, data))]
        for split in ("train", "calibration")
        if task.training is not None
    }
    try:
        validation: Any = load_task(task, data, None, "validation").eval_docs
    except (UsageError, EnvironmentProblem):  # a task may have none
        validation = []
    return {
        "asked": digest([[sample.prompt, list(sample.choices), str(sample.target)] for sample in samples]),
        "first": [samples[0].prompt, str(samples[0].target)],
        "with_shots": digest([entry["arguments"] for entry in with_shots]),
        "settings": parrot.settings,
        "validation": digest([dict(doc) for doc in list(validation)[:8]]),
        "taught": digest(taught),
        "answers": [_answer(sample) for sample in samples],
        "scores": {key: value for key, value in sorted(results["results"][name].items()) if isinstance(value, float)},
    }


def _asked(name: str, loaded: Any, model: LM, documents: int) -> dict[str, Any]:
    with quiet():
        tasks = {"tasks": {name: loaded}, "groups": {}, "group_map": {}}
        found: dict[str, Any] = evaluator.evaluate(model, tasks, limit=documents, bootstrap_iters=0)
    return found


def _answer(sample: Sample) -> Any:
    output = sample.output if isinstance(sample.output, str) else round(sample.output, 6)
    return {"output": output, "answers": dict(sample.answers), "scores": dict(sample.scores)}


class _Parrot(LM):
    """Writes given texts with each document's own answer put in; likes continuations by their digests."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__()
        self.texts = texts
        self.settings: dict[str, Any] = {}

    def generate_until(self, requests: list[Instance]) -> list[str]:
        self.settings = dict(requests[0].args[1])
        return [self._written(text, request) for text, request in zip(self.texts, requests, strict=True)]

    def _written(self, text: str, request: Instance) -> str:
        doc = request.doc
        answer = str(doc.get("answer", doc.get("target"))).rpartition("####")[2].strip()
        return text.replace("{a}", answer).replace("{l}", answer.lower())

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return [(-int(digest(list(request.args)), 16) / 2**64, False) for request in requests]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return [-10 * int(digest(list(request.args)), 16) / 2**64 for request in requests]


def write_data(folder: Path) -> None:
    """Made-up documents of every data set that `WITH_DATA` reads."""
    draw = random.Random(3)
    words = ["ice", "fire", "sand", "wood", "rain", "salt"]
    options = {"label": list("ABCDE"), "text": words[:5]}
    for split in ("train", "validation", "test", "dev"):
        rows = [(n, f"{split} {n}: {' '.join(draw.choices(words, k=4))}", draw.randrange(4)) for n in range(_ROWS)]
        _write(folder, "gsm8k", split, [_gsm8k(n, text) for n, text, _ in rows])
        csqa = [
            {"id": f"{split}{n}", "question": text, "choices": options, "answerKey": "ABCD"[k]} for n, text, k in rows
        ]
        _write(folder, "commonsense_qa", split, csqa)
        explained = [{"id": row["id"], "abstractive_explanation": f"because  {row['question']} "} for row in csqa]
        _write(folder, "cos_e", split, explained)
        subjects = ("anatomy", "law")
        mmlu = [{"question": t, "subject": subjects[n % 2], "choices": words[:4], "answer": k} for n, t, k in rows]
        _write(folder, "mmlu", split, mmlu)
        _write(folder, "piqa", split, [{"goal": t, "sol1": "x", "sol2": "y", "label": k % 2} for _, t, k in rows])
        _write(folder, "corpus", split, [{"text": f"{text}.\n{text}!"} for _, text, _ in rows])
        _write(folder, "wmt16_ro_en", split, [{"translation": {"en": t, "ro": t.upper()}} for _, t, _ in rows])
        traces = {"reasoning_nemotron_70B": "<reasoning>\nIce melts.\n</reasoning>"}
        for name, some in {"gsm8k": [_gsm8k(n, text) for n, text, _ in rows], "commonsense_qa": csqa}.items():
            _write(folder, f"multi-domain-reasoning/{name}", split, [row | traces for row in some])


def _gsm8k(number: int, text: str) -> dict[str, str]:
    total = 3 * number
    return {"question": f"{text} How many?", "answer": f"It is <<3*{number}={total}>>{total}.\n#### {total}"}


def _write(folder: Path, name: str, split: str, rows: Sequence[Any]) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def digest(value: Any) -> str:
    """Of plain values, 64 bits in hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, ensure_ascii=False, default=str).encode()).hexdigest()[:16]
