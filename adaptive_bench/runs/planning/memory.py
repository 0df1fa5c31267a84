"""What a run knows of its records from the last time it ended: which of them are finished, and the rows they gave.

Everything is remembered under digests of bytes (of the files of records and of the code) and never under a time, so
that it is never stale. It only saves time: without it everything is looked at, and the same comes out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from adaptive_bench import own_code, registry
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun
from adaptive_bench.source import TABLES, code_of
from adaptive_bench.store import atomic
from adaptive_bench.store.digest import changed, digests, file_digest, unsealed
from adaptive_bench.store.files import files_of
from adaptive_bench.store.keys import canonical

FILE, GROUPS = "remembered.json", "remembered.jsonl"
_LIBRARIES = ("numpy", "scipy", "torch", "transformers")


class Memory:
    """What the folder of a run remembers, beside a plan of the same run.

    Args:
        folder: Of the run.
        whole: Its plan.
    """

    def __init__(self, folder: Path, whole: Plan) -> None:
        self.folder, self.whole = folder, whole
        works: list[TrainingRun | DialEvaluation] = [*whole.trainings, *whole.sweeps]
        self._before = self._read()
        self._finished = set(self._before.get("finished", ()))
        self._digests = {work.folder: files_of(work.folder).digest() for work in works}
        about = whole.config.model_dump(mode="json", exclude={"methods", "tasks", "seeds", "out"})
        self._shared = _hashed([_source(), TABLES, {name: version(name) for name in _LIBRARIES}, about])
        self._keys = {work.folder: _hashed([self._shared, self._about(work)]) for work in works}
        self._groups: dict[str, Any] = {}
        self._lines: dict[str, str] | None = None

    def recall_finished(self) -> None:
        """Spare finished work the look at whether it is."""
        works: list[TrainingRun | DialEvaluation] = [*self.whole.trainings, *self.whole.sweeps]
        for work in works:
            if self.knows(work):
                work.remember_finished()

    def knows(self, work: TrainingRun | DialEvaluation) -> bool:
        """Whether some work was finished, as it is, when the run last ended with the code that is here now."""
        return self._keys[work.folder] in self._finished

    def is_same(self, outputs: Sequence[str]) -> bool:
        """Whether the run ended with these very records, and with the outputs as they lie there."""
        known = self._before.get("outputs")
        return (
            isinstance(known, dict)
            and known.keys() == set(outputs)
            and self._before.get("run") == self._run()
            and not changed(self.folder, known)
        )

    def group(self, sweeps: Sequence[DialEvaluation]) -> Any:
        """What was found in some sweeps of one method on one task; `None` where nothing is remembered of them."""
        if self._lines is None:
            try:
                lines = (self.folder / GROUPS).read_text(encoding="utf-8").splitlines()
            except (OSError, ValueError):
                lines = []
            self._lines = {key: text for key, _, text in (line.partition("\t") for line in lines)}
        key = self._key_of(sweeps)
        try:
            known = json.loads(self._lines[key])
        except (LookupError, ValueError):
            return None
        self._groups[key] = known
        return known

    def put(self, sweeps: Sequence[DialEvaluation], found: Any) -> None:
        """Remember it from now on."""
        self._groups[self._key_of(sweeps)] = found

    def keep(self, outputs: Sequence[str]) -> None:
        """Write down what is known, of a run that is done."""
        lines = "".join(f"{key}\t{canonical(found)}\n" for key, found in self._groups.items())
        atomic.update_text(self.folder / GROUPS, lines)
        about = {
            "run": self._run(),
            "outputs": digests(self.folder, (self.folder / name for name in outputs)),
            "finished": sorted(self._keys.values()),
        }
        if about != self._before:
            atomic.write_sealed(self.folder / FILE, about)

    def _read(self) -> dict[str, Any]:
        try:
            return unsealed((self.folder / FILE).read_bytes())
        except (OSError, ValueError):
            return {}

    def _about(self, work: TrainingRun | DialEvaluation) -> list[Any]:
        training = work if isinstance(work, TrainingRun) else work.training
        bases = [self._digests[base.folder] for base in training.chain[1:]]
        about = [work.folder.name, self._digests[work.folder], str(work.spec), _code(work.spec.name), bases]
        if isinstance(work, TrainingRun):
            return [*about, work.target, work.has_single_target]
        curves = {name: curve.points for name, curve in work.curves.items()}
        own = None if work.own is None else self._digests[work.own.folder]
        return [*about, work.levels, work.split, curves, self._digests[work.training.folder], own]

    def _key_of(self, sweeps: Sequence[DialEvaluation]) -> str:
        metrics = find_task(sweeps[0].task).metrics
        return _hashed(
            [self._shared, metrics, [[self._keys[one.folder], self._keys[one.training.folder]] for one in sweeps]]
        )

    def _run(self) -> str:
        """Of everything that the outputs of the run depend on."""
        config, home = self.whole.config, self.whole.config.out / "records"
        others = sorted(one.name for one in home.iterdir()) if home.is_dir() else []
        return _hashed([list(self._keys.values()), config.methods, config.tasks, config.seeds, others])


def _hashed(about: Any) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:32]


@cache
def _code(method: str) -> str:
    code = code_of(method)
    file = None if code is None else registry.file_of("methods", method)  # none of a plugin that is not here
    return f"{code} {'' if file is None else file_digest(file)}"


@cache
def _source() -> str:
    """Of the bytes of this distribution's code, whatever they mean."""
    return _hashed([file_digest(path) for path in own_code.everything()])
