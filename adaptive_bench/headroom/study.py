"""The headroom of one model on tasks: runs what is missing, piece by piece, and puts the record together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.headroom.asked import Asked, Asker
from adaptive_bench.headroom.askings import Asking, askings, why_asked_once
from adaptive_bench.headroom.divergence import FullModel
from adaptive_bench.headroom.exit_report import exit_report
from adaptive_bench.headroom.online import online_exits
from adaptive_bench.headroom.pieces import Pieces
from adaptive_bench.headroom.sensitivity import site_sensitivity
from adaptive_bench.headroom.static_sets import LayerSet, finalists, next_nested
from adaptive_bench.headroom.subject import Subject
from adaptive_bench.headroom.task_record import task_record
from adaptive_bench.headroom.texts import TaskText, collect_texts
from adaptive_bench.method import KVPolicy
from adaptive_bench.model.prescribed import static_model
from adaptive_bench.model.site_costs import SHARE
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.planning.task_inputs import asked_since, task_inputs
from adaptive_bench.source import FLOORS
from adaptive_bench.store.keys import key_of
from adaptive_bench.task import DocumentSplit, Task

# Raised when a number of this package changes: pieces of another version are not used.
VERSION = 1
# Documents whose texts are read token by token (sites, exits, which layers to leave out), and texts of them: a document
# with four choices has four.
TEXT_DOCUMENTS, MOST_TEXTS = 32, 64
HALVES = 2  # askings


@dataclass(frozen=True)
class Settings:
    """What a study depends on beside the model.

    Attributes:
        levels: Net savings at which headroom is read off; `None` for each task's own.
        limit: Only so many documents of a task, drawn as by `evaluate`; `None` for all.
        kv: What tokens that left early leave in the layers above.
    """

    levels: tuple[float, ...] | None = None
    limit: int | None = 128
    seed: int = 0
    num_fewshot: int | None = None
    kv: KVPolicy = "recompute"
    data_dir: Path | None = None
    batch_size: int = 64


def study(subject: Subject, tasks: Sequence[str], settings: Settings, out: Path, reporter: Reporter) -> dict[str, Any]:
    """The record of all tasks, plain values.

    Args:
        out: Pieces are kept in `<out>/headroom/`, and found there when the same study is asked for again.
    """
    return {
        "kind": "headroom",
        "version": VERSION,
        "model": {
            "name": subject.name,
            "fingerprint": subject.fingerprint,
            "layers": int(subject.model.config.num_hidden_layers),
        },
        "settings": _plain(settings),
        "share_skipping": SHARE,
        "tasks": [_TaskStudy(subject, find_task(name), settings, out, reporter).record() for name in tasks],
    }


def _plain(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in asdict(settings).items() if name not in ("data_dir", "batch_size")}


class _TaskStudy:
    """One task."""

    def __init__(self, subject: Subject, task: Task, settings: Settings, out: Path, reporter: Reporter) -> None:
        self._subject, self._task, self._settings, self._reporter = subject, task, settings, reporter
        levels = settings.levels or tuple(level for level in task.levels if level > 0)
        self._settings = replace(settings, levels=levels)
        self._asker = Asker(
            task,
            subject.tokenizer,
            limit=settings.limit,
            data_dir=settings.data_dir,
            num_fewshot=settings.num_fewshot,
            batch_size=settings.batch_size,
            reporter=reporter,
        )
        content = {
            "version": VERSION,
            "floors": FLOORS,
            "model": subject.fingerprint,
            "task": task.name,
            "settings": _plain(self._settings),
            **task_inputs(task, settings.data_dir),
            **asked_since(task, settings.limit, settings.num_fewshot),
        }
        self._pieces = Pieces(out / "headroom" / f"{task.name.replace(':', '-').replace('/', '-')}-{key_of(content)}")

    def record(self) -> dict[str, Any]:
        """Everything about the task."""
        task = self._task
        harness_task = load_task(task, self._settings.data_dir, self._settings.num_fewshot, "test")
        shots = harness_task.config.num_fewshot or 0
        encode = self._subject.tokenizer.encode
        asked_once = why_asked_once(str(harness_task.config.output_type), shots, encode)
        ways = askings(1 if asked_once else HALVES, shots)

        # The cheapest things that can go wrong first: a task without validation documents.
        dense_validation = self._ask((), "validation", Asking())
        sites = self._pieces.get("sites", self._sites)["sites"]
        exits = self._pieces.get("exits", self._exits)
        online = self._online()
        largest = max(*(self._settings.levels or ()), online.saved)
        searched = self._search(largest)
        validation = {(): dense_validation} | self._validated(searched)
        chosen = _chosen(searched, validation, self._asker.sign)
        runs = self._tested(chosen, ways)
        again = [] if asked_once else self._dense_again(len(chosen), shots)
        return task_record(
            task=task,
            metric=self._asker.metric,
            settings=asdict(self._settings),
            sets=chosen,
            validation=[validation[skipped] for skipped in chosen],
            runs=runs,
            again=again,
            online=online,
            exits=exits,
            sites=sites,
            asked_once=asked_once,
        ) | {"finalists": [[asdict(one) for one in sets] for sets in searched]}

    def _sites(self) -> dict[str, Any]:
        label = f"{self._task.name}: every site"
        with self._reporter.task(label, total=2 * int(self._subject.model.config.num_hidden_layers)) as task:
            full = FullModel(self._dense, self._texts("test"), self._settings.batch_size)
            return {"sites": site_sensitivity(self._subject.model, full, seed=self._settings.seed, task=task)}

    def _exits(self) -> dict[str, Any]:
        return exit_report(
            self._subject.model,
            self._texts("test"),
            kv=self._settings.kv,
            seed=self._settings.seed,
            rows=self._settings.batch_size,
            reporter=self._reporter,
            label=self._task.name,
        )

    def _online(self) -> Asked:
        def run() -> dict[str, Any]:
            with self._reporter.task(f"{self._task.name}: exits on the cache they leave", total=1) as task:
                model = online_exits(self._subject.model, self._settings.kv)
                asked = self._asker.ask(model, "test", Asking())
                task.advance()
            return asked.to_json()

        return Asked(**self._pieces.get(f"online-{self._settings.kv}", run))

    def _search(self, largest_saving: float) -> list[list[LayerSet]]:
        """Finalists of 1, 2, ... layers left out, until a saving is reached or one layer is left."""
        found: list[list[LayerSet]] = []
        nested: tuple[int, ...] = ()
        for count in range(1, int(self._subject.model.config.num_hidden_layers)):
            sets = [
                LayerSet.from_json(one) for one in self._pieces.get(f"sets-{count}", self._finalists(nested))["sets"]
            ]
            found.append(sets)
            nested = next_nested(sets, nested).skipped
            if sets[0].saved >= largest_saving:
                break
        return found

    def _finalists(self, nested: tuple[int, ...]) -> Callable[[], dict[str, Any]]:
        def search() -> dict[str, Any]:
            where = self._reporter, self._task.name
            sets = finalists(self._subject.model, self._validation, len(nested) + 1, nested, *where)
            return {"sets": [asdict(one) for one in sets]}

        return search

    @cached_property
    def _validation(self) -> FullModel:
        return FullModel(self._dense, self._texts("validation"), self._settings.batch_size, answers_only=True)

    def _validated(self, searched: list[list[LayerSet]]) -> dict[tuple[int, ...], Asked]:
        found = [one.skipped for sets in searched for one in sets]
        with self._reporter.task(f"{self._task.name}: sets on validation documents", total=len(found)) as task:
            answered = {}
            for skipped in found:
                answered[skipped] = self._ask(skipped, "validation", Asking())
                task.advance()
        return answered

    def _tested(self, sets: Sequence[tuple[int, ...]], ways: Sequence[Asking]) -> list[list[Asked]]:
        """[askings][sets]."""
        with self._reporter.task(f"{self._task.name}: sets on test documents", total=len(sets) * len(ways)) as task:
            runs: list[list[Asked]] = []
            for way in ways:
                runs.append([])
                for skipped in sets:
                    runs[-1].append(self._ask(skipped, "test", way))
                    task.advance()
        return runs

    def _dense_again(self, count: int, shots: int) -> list[Asked]:
        """The full model asked in as many ways as there are sets."""
        with self._reporter.task(f"{self._task.name}: the full model asked again", total=count) as task:
            found = []
            for way in askings(count, shots):
                found.append(self._ask((), "test", way))
                task.advance()
        return found

    def _ask(self, skipped: tuple[int, ...], split: DocumentSplit, way: Asking) -> Asked:
        asked = hashlib.sha256(repr(tuple(way)).encode()).hexdigest()[:8]
        name = f"{split}-{'-'.join(map(str, skipped)) or 'all'}-{asked}"

        def run() -> dict[str, Any]:
            return self._asker.ask(static_model(self._subject.model, skipped), split, way).to_json()

        return Asked(**self._pieces.get(name, run))

    @cached_property
    def _dense(self) -> Any:
        return static_model(self._subject.model, ())

    def _texts(self, split: DocumentSplit) -> list[TaskText]:
        limit = self._settings.limit
        found = collect_texts(
            self._dense,
            self._subject.tokenizer,
            self._task.name,
            split=split,
            limit=TEXT_DOCUMENTS if limit is None else min(limit, TEXT_DOCUMENTS),
            data_dir=self._settings.data_dir,
            num_fewshot=self._settings.num_fewshot,
            batch_size=self._settings.batch_size,
            reporter=self._asker.reporter,
        )
        return found[:MOST_TEXTS]


def _chosen(
    searched: Sequence[Sequence[LayerSet]], validation: Mapping[tuple[int, ...], Asked], sign: int
) -> list[tuple[int, ...]]:
    """The candidates: no layer left out, and of every number of layers the best set on validation documents (of equal
    ones that nearer to the full model) and the one in the chain of nested sets.
    """
    chosen: list[tuple[int, ...]] = [()]
    nested: tuple[int, ...] = ()
    for sets in searched:
        best = max(sets, key=lambda one: (sign * validation[one.skipped].score, -one.divergence))
        nested = next_nested(sets, nested).skipped
        chosen += dict.fromkeys((best.skipped, nested))
    return chosen
