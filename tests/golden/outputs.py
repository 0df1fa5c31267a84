"""What the code computes on tiny models. `python tests/golden/outputs.py` writes it beside the versions of the code.

Whoever changes what is computed raises a version (`adaptive_bench/store/keys.py`, or `VERSION` in a method's file) and
gives this command; `test_golden.py` fails where only one of the two was done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import golden_models
import golden_runs
import golden_tables
import golden_tasks
import torch
from golden_models import SHUFFLED, WITHOUT_A_KIND, families

from adaptive_bench import registry
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import FLOORS, TABLES, code_behind
from adaptive_bench.testing.subject import SHARES, ShortTraining, Subject, calibrate, random_text, spread, trained_model
from adaptive_bench.testing.suite import method_specs

FILE = Path(__file__).with_name("golden.json")
LENGTHS = (20, 13, 17)
STEPS = 3
TASKS = golden_tasks.NANO
DOCUMENTS = 4
TOLERANCE = 1e-5  # what processors differ by, or 1e-4 of a value if that is more
# Weights that differ by one unit in the last place move a logit of these models, of about 1, by up to 2e-5.
OF_LOGITS = 1e-4
NUDGES = (1, 2, 3, 4)
MOST_TEXTS = 100


def specs() -> list[MethodSpec]:
    """Every spec that the conformance suite checks, of the methods of this distribution."""
    own = [name for name in registry.names("methods") if not registry.is_foreign("methods", name)]
    return [spec for name in own for spec in method_specs(name)]


def versions(spec: MethodSpec) -> dict[str, Any]:
    """Of the code behind a spec."""
    return {**code_behind(spec.name, "training"), **code_behind(spec.name, "evaluation")}


def of_method(spec: MethodSpec, folder: Path, first_text: int = 1, nudge: int = 0) -> dict[str, Any]:
    """Losses of a short training; decisions, logits, tokens and ledger of what it trains.

    Args:
        first_text: See `ShortTraining`.
        nudge: Seed of changes of all weights before the training by about one unit in the last place; 0: none.
    """
    subject = Subject(spec, "llama")
    losses = _training(subject, first_text, nudge).run(1, STEPS)
    model = trained_model(subject, folder, _training(subject, first_text, nudge))
    spread(model)
    calibrate(model)
    model.dial = model.method.dial_for(SHARES[0] * model.method.max_saved_tokens)
    text = random_text(LENGTHS, seed=5)
    kept: dict[str, int] = {}
    with torch.no_grad(), recorded_decisions(model.method) as decisions:
        model.reset_ledger()
        logits = model(**text.arguments).logits
        for site, decision in decisions:
            name = f"{site.layer} {site.branch}"
            kept[name] = kept.get(name, 0) + (-1 if decision.keep is None else int(decision.keep.sum()))
        prompt = text.prefix(8)
        written = model.generate(prompt.input_ids[:1], attention_mask=prompt.attention_mask[:1], max_new_tokens=6)
    report = model.compute_report()
    return {
        "losses": losses,
        "logits": logits[torch.arange(len(LENGTHS)), -1, :3].flatten().tolist(),
        "kept": kept,
        "written": written[0, 8:].tolist(),
        "macs": report["macs"],
        "saved": {part: report[part] for part in ("saved", "prefill", "decode")},
        "decoded": golden_models.decoded(model, text),
    }


def _training(subject: Subject, first_text: int, nudge: int) -> ShortTraining:
    training = ShortTraining(subject, total_steps=STEPS, first_text=first_text)
    if nudge:
        generator = torch.Generator().manual_seed(nudge)
        with torch.no_grad():
            for parameter in training.model.parameters():
                parameter.mul_(1 + 1e-7 * torch.randn(parameter.shape, generator=generator))
    return training


def steady_text(spec: MethodSpec, folder: Path) -> int:
    """The first text from which a training gives what every processor gives: where two tokens are nearly equal to a
    method, the last digit decides which of them is skipped, and 3 steps make of that another model.
    """
    for first in range(1, MOST_TEXTS, STEPS):
        known = of_method(spec, folder / f"{first}", first)
        if not any(moved(known, of_method(spec, folder / f"{first} {seed}", first, seed)) for seed in NUDGES):
            return first
    raise RuntimeError(f"No training of {spec} is the same whatever the last digit.")


def moved(known: Any, now: Any, where: str = "") -> list[str]:
    """Places at which two results differ by more than rounding."""
    if isinstance(known, dict) and isinstance(now, dict):
        names = sorted(known.keys() | now.keys())
        return [place for name in names for place in moved(known.get(name), now.get(name), f"{where}.{name}")]
    if isinstance(known, list) and isinstance(now, list) and len(known) == len(now):
        return [
            place
            for number, pair in enumerate(zip(known, now, strict=True))
            for place in moved(*pair, f"{where}[{number}]")
        ]
    if isinstance(known, float) and isinstance(now, float):
        furthest = OF_LOGITS if ".logits" in where else TOLERANCE
        return [] if abs(now - known) <= max(furthest, 1e-4 * abs(known)) else [where]
    return [] if known == now else [where]


def of_tasks() -> dict[str, Any]:
    """Digests of what the tasks of this distribution that need no data ask, teach and take for right."""
    from adaptive_bench.evaluation.loading import load_task
    from adaptive_bench.evaluation.lookup import find_task
    from adaptive_bench.task import ExampleRequest

    found = {}
    for name in TASKS:
        task = find_task(name)
        loaded = load_task(task, None, None)
        asked = [[loaded.doc_to_text(doc), str(loaded.doc_to_target(doc))] for doc in list(loaded.eval_docs)[:64]]
        taught = [] if task.training is None else task.training(ExampleRequest("train", 64, 1, None))
        found[name] = _digest([asked, [[one.prompt, one.completion] for one in taught]])
    return found


def of_evaluation(folder: Path) -> dict[str, Any]:
    """Scores and savings of a tiny model on tasks of both kinds."""
    from model_folder import write_model_folder

    from adaptive_bench.evaluation.evaluate import evaluate
    from adaptive_bench.model import AdaptiveModel
    from adaptive_bench.runs.backbone_source import find_backbone

    write_model_folder(folder / "model")
    source = find_backbone(str(folder / "model"))
    model, tokenizer = AdaptiveModel.build(source.load_model(), "random_skip", seed=1).eval(), source.load_tokenizer()
    model.dial = model.method.dial_for(0.3)
    found = {}
    for name in ("nano_math", "nano_qa_ll"):
        evaluation, samples = evaluate(model, tokenizer, name, limit=DOCUMENTS, batch_size=2)
        found[name] = {
            "scores": dict(evaluation.scores),
            "savings": dict(evaluation.savings),
            "output": [sample.output for sample in samples],
            "data": {key: value for key, value in (evaluation.data or {}).items() if key.endswith("sha256")},
        }
    return found


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()[:16]


def groups() -> dict[str, Callable[[Path], Any]]:
    """By name of a group what gives its values, from an empty folder; those of methods apart (`of_method`)."""
    found: dict[str, Callable[[Path], Any]] = {
        "training": golden_runs.of_training,
        "encoding": golden_runs.of_encoding,
        "pricing": lambda _: golden_runs.of_pricing(),
        "definitions of tasks": lambda _: golden_tasks.definitions(),
        "answers": lambda _: golden_tasks.of_answers(),
        "texts": golden_runs.of_texts,
        "sweeps": lambda _: golden_runs.of_sweeps(),
        "tables": lambda _: golden_tables.finite(golden_tables.of_tables()),
    }
    found |= {f"family {name}": partial(_in_no_folder, golden_models.of_family, name) for name in families()}
    found |= {f"shuffled {name}": partial(_in_no_folder, golden_models.of_shuffled, name) for name in SHUFFLED}
    found |= {
        f"shuffled gateskip, {name}": partial(
            _in_no_folder, partial(golden_models.of_shuffled, answers=answers), "gateskip"
        )
        for name, answers in WITHOUT_A_KIND.items()
    }
    return found | {f"task {name}": partial(_of_task, name) for name in (*golden_tasks.NANO, *golden_tasks.WITH_DATA)}


def _in_no_folder(values: Callable[[str], Any], name: str, _: Path) -> Any:
    return values(name)


def _of_task(name: str, folder: Path) -> Any:
    if name in golden_tasks.NANO:
        return golden_tasks.of_task(name, None)
    golden_tasks.write_data(folder)
    return golden_tasks.of_task(name, folder)


def _kept(known: Any, now: Any) -> Any:
    """New values, but the known ones wherever the new differ from them by rounding alone."""
    if isinstance(known, dict) and isinstance(now, dict):
        return {name: _kept(known.get(name), value) for name, value in now.items()}
    return now if moved(known, now) else known


def main() -> None:
    """Write everything down; what only rounds in another way here stays as it is."""
    import tempfile

    torch.set_num_threads(1)
    values: dict[str, Any] = {"floors": FLOORS, "rules of tables": TABLES, "methods": {}}
    for number, spec in enumerate(specs()):
        with tempfile.TemporaryDirectory() as folder:
            first = steady_text(spec, Path(folder))
            found = of_method(spec, Path(folder) / str(number), first)
            values["methods"][str(spec)] = {"versions": versions(spec), "first_text": first, **found}
    values["tasks"] = of_tasks()
    with tempfile.TemporaryDirectory() as folder:
        values["evaluation"] = of_evaluation(Path(folder))
    for name, values_of in groups().items():
        with tempfile.TemporaryDirectory() as folder:
            values[name] = values_of(Path(folder))
    values = _kept(json.loads(FILE.read_text(encoding="utf-8")), json.loads(json.dumps(values)))
    FILE.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
