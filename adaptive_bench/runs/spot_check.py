"""May records of other code be used? Their keys say so, as far as somebody raised a version where a number moved. So
part of them is repeated with the code that is here now, and compared (`runs.repeated`).

Of every method whose code is other one training and one evaluation are looked at, and of every task one evaluation; a
few at each start of a run until all were. That takes seconds, and is done once for each change of the code. Nothing is
done where the code is the same, comments, docstrings and names of files aside (`code_digest`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from adaptive_bench.code_digest import PARTS, code_digest
from adaptive_bench.errors import EnvironmentProblem, TrainingDiverged, message_of
from adaptive_bench.jobs.plugins import needs_own_process
from adaptive_bench.probed import stored_matrix
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.outcome.run_outcome import outputs_of
from adaptive_bench.runs.planning.memory import Memory
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun
from adaptive_bench.runs.repeated import moved_in_point, moved_in_training
from adaptive_bench.store import atomic, attempts
from adaptive_bench.store.digest import unsealed
from adaptive_bench.store.files import forget
from adaptive_bench.store.manifest import FILE as MANIFEST

FILE, ASIDE = "spot_checks.json", "records_of_other_code"
MOST = 6  # trainings, and as many evaluations, at one start
_UNKNOWN = "unknown"  # of records whose version did not say
_CORE, _METHOD, _TASKS = PARTS
_MOST_TOLD = 4  # differences
_FLOORS = {
    (True, False): "training",
    (False, True): "evaluation, model or dials",
    (True, True): "engine, method, backbone, model or dials",
}

_Work = TrainingRun | DialEvaluation
_Change = tuple[str, str]  # part of the code, and its digests then and now


def spot_check(whole: Plan, folder: Path, memory: Memory, reporter: Reporter) -> bool:
    """Check the finished records of a plan that other code made, unless that was done before. Where they are not alike
    they are put aside, so that they are made anew, and with them the table that the run made of them.

    Args:
        folder: Of the run; it remembers what was checked.
        memory: Of the run: what it knows was finished with the code that is here now.

    Returns:
        Whether records were put aside.

    Raises:
        EnvironmentProblem: A process is at work in a record that was to be put aside.
    """
    works: list[_Work] = [*whole.trainings, *whole.sweeps]
    changed = {work.folder: (work, changes) for work in works if not memory.knows(work) and (changes := _changes(work))}
    known = _known(folder)
    pending = [one for one in changed.values() if _subjects(*one) - known]
    if not pending:
        return False
    found = _look(_chosen(pending, known, whole), whole, reporter)
    if found.moved:
        _redo(found, list(changed.values()), whole, folder, reporter)
        return True
    left = {subject for one in _repeatable(pending, whole) for subject in _subjects(*one)} - known - found.alike
    done = {subject for one in pending for subject in _subjects(*one)} - left
    if done or found.alike:
        atomic.write_sealed(folder / FILE, {"alike": sorted(known | done | found.alike)})
    for work, why in found.unchecked:
        reporter.line(f"Records of other code, {work} among them, are used unchecked: {why}")
    if found.looked_at or not found.unchecked:
        what = ", ".join(f"`{work}`" for work in found.looked_at)
        rest = " The next start looks at more of them." if left and not found.unchecked else ""
        reporter.line(
            f"{len(pending)} record(s) are of other code and are used: "
            + (f"part of {what} was repeated and is alike.{rest}" if what else "none can be checked.")
        )
    return False


@dataclass
class _Found:
    """What a look at some works came to.

    Attributes:
        alike: Subjects that need no further look.
        moved: What is otherwise now, by work.
    """

    looked_at: list[_Work] = field(default_factory=list)
    alike: set[str] = field(default_factory=set)
    moved: list[tuple[_Work, Sequence[_Change], list[str]]] = field(default_factory=list)
    unchecked: list[tuple[_Work, str]] = field(default_factory=list)
    cleared: set[tuple[type, _Change]] = field(default_factory=set)

    def blamed(self) -> set[_Change]:
        """Changes of the code that moved something: those that no work shares that is alike, if there is such a one."""
        blamed: set[_Change] = set()
        for work, changes, _ in self.moved:
            suspects = {change for change in changes if (type(work), change) not in self.cleared}
            blamed |= suspects or set(changes)
        return blamed


def _look(chosen: Iterable[tuple[_Work, Sequence[_Change]]], whole: Plan, reporter: Reporter) -> _Found:
    found = _Found()
    for work, changes in chosen:
        try:
            if isinstance(work, TrainingRun):
                moved = list(moved_in_training(work, whole.config))
            else:
                moved = list(moved_in_point(work))
        except TrainingDiverged as error:  # it did not when it was recorded
            moved = [message_of(error)]
        except EnvironmentProblem as error:  # a damaged model, say: no reason to refuse what was measured with it
            found.unchecked.append((work, message_of(error)))
            continue
        found.looked_at.append(work)
        if moved:
            found.moved.append((work, changes, moved))
        else:
            found.alike |= _subjects(work, changes)
            found.cleared |= {(type(work), change) for change in changes}
    return found


def _redo(
    found: _Found, changed: Sequence[tuple[_Work, Sequence[_Change]]], whole: Plan, folder: Path, reporter: Reporter
) -> None:
    """Put aside what rests on code that is not alike, and say so."""
    blamed = found.blamed()
    works = [work for work, changes in changed if blamed & set(changes)]
    aside = whole.config.out / ASIDE / hashlib.sha256(repr(sorted(blamed)).encode()).hexdigest()[:8]
    count = _put_aside(whole, works, aside)
    _put_table_aside(folder, aside)
    looked_at = " and ".join(f"`{work}`" for work, _, _ in found.moved)
    told = [text for _, _, moved in found.moved for text in moved]
    more = f" and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    reporter.line(
        f"Records of other code are used where they are alike up to rounding, but repeating part of {looked_at} gave "
        f"{'; '.join(told[:_MOST_TOLD])}{more}. {count} record(s) of that code were moved to {str(aside)!r} and are "
        f"made anew. Whoever changed the code raises the version of {_versions(found, blamed)}, or mends it."
    )


def _versions(found: _Found, blamed: set[_Change]) -> str:
    parts = {part for part, _ in blamed}
    if parts == {_METHOD}:
        return "the method (VERSION in its file)"
    if parts == {_TASKS}:
        return "tasks in adaptive_bench/source.py"
    kinds = {type(work) for work, _, _ in found.moved}
    return f"{_FLOORS[TrainingRun in kinds, DialEvaluation in kinds]} in adaptive_bench/source.py"


def _known(folder: Path) -> set[str]:
    try:
        return set(unsealed((folder / FILE).read_bytes())["alike"])
    except (OSError, ValueError, LookupError, TypeError):
        return set()


def _changes(work: _Work) -> tuple[_Change, ...]:
    """In what the code that was at some work differs from that which is here now, of the parts that concern it. The
    training text is part of a key, so that of the tasks an evaluation alone depends on more than that.
    """
    environment = work.record.read("env.json")
    if environment is None:
        return ()
    made, now = environment.get("code", _UNKNOWN), code_digest(work.spec.name, _out(work))
    pairs = zip_longest(PARTS, made.split("."), now.split("."), fillvalue="")
    return tuple(
        (part, f"{before}>{after}")
        for part, before, after in pairs
        if before and after and before != after and not (part == _TASKS and isinstance(work, TrainingRun))
    )


def _subjects(work: _Work, changes: Iterable[_Change]) -> set[str]:
    """What a look at some work would settle, for each change of the code: its method, its task, its control."""
    found: set[str] = set()
    for part, digests in changes:
        if isinstance(work, TrainingRun):
            names = [f"train {work.spec.name}"]
        elif part == _TASKS:
            names = [f"ask {work.task}"]
        else:
            names = [f"evaluate {work.spec.name}"]
            names += [f"ask {work.task}"] if part == _CORE else []
            names += [f"evaluate {work.variant}"] if work.variant else []
        found |= {f"{part} {digests} {name}" for name in names}
    return found


def _chosen(
    pending: Sequence[tuple[_Work, Sequence[_Change]]], known: set[str], whole: Plan
) -> list[tuple[_Work, Sequence[_Change]]]:
    """A few trainings and evaluations that settle as much as possible."""
    ours = _repeatable(pending, whole)
    chosen: list[tuple[_Work, Sequence[_Change]]] = []
    for kind in (TrainingRun, DialEvaluation):
        some, settled = [one for one in ours if isinstance(one[0], kind)], set(known)
        for _ in range(MOST):
            best = max(some, key=lambda one: len(_subjects(*one) - settled), default=None)
            if best is None or not (new := _subjects(*best) - settled):
                break
            settled |= new
            chosen.append(best)
    return chosen


def _repeatable(
    pending: Sequence[tuple[_Work, Sequence[_Change]]], whole: Plan
) -> list[tuple[_Work, Sequence[_Change]]]:
    """Of works that would settle the same one that can be repeated here, always the same one of the same works."""
    by_name = sorted(pending, key=lambda one: hashlib.sha256(one[0].folder.name.encode()).hexdigest())
    found: dict[frozenset[str], tuple[_Work, Sequence[_Change]]] = {}
    for work, changes in by_name:
        subjects = frozenset(_subjects(work, changes))
        if subjects in found or _is_of_plugin(work):
            continue
        if _can_be_repeated(work) if isinstance(work, TrainingRun) else _can_be_asked(work):
            found[subjects] = work, changes
    return list(found.values())


def _out(work: _Work) -> Path:
    training = work if isinstance(work, TrainingRun) else work.training
    return training.folder.parent.parent


def _is_of_plugin(work: _Work) -> bool:
    """Whether it is done in a process of its own."""
    under = work.training if isinstance(work, DialEvaluation) else work.base
    return needs_own_process(work.spec.name) or (under is not None and _is_of_plugin(under))


def _can_be_repeated(training: TrainingRun) -> bool:
    has_base = training.base is None or training.base.checkpoint.is_dir()
    return bool(training.steps) and has_base and (training.folder / "train.jsonl").is_file()


def _can_be_asked(sweep: DialEvaluation) -> bool:
    """Whether its model is here, and answers a document alike whatever else is asked."""
    causality: Mapping[str, str] = stored_matrix(sweep.spec.name).get(str(sweep.spec), {})
    alone = causality["causality"] != "C2" if "causality" in causality else sweep.spec.semantics == "bench"
    return alone and sweep.training.checkpoint.is_dir() and bool(sweep.record.savings())


def _put_aside(whole: Plan, works: Sequence[_Work], aside: Path) -> int:
    """Move records, and those of trainings that start from them, with all that was measured of them."""
    moved = {work.folder: work for work in works}
    for training in whole.trainings:  # what a training starts from comes before it
        if training.base is not None and training.base.folder in moved:
            moved[training.folder] = training
    folders = [folder for folder in moved if folder.parent.parent not in moved and folder.is_dir()]
    held = [place for folder in folders for place in (folder, *folder.glob("eval/*")) if attempts.is_held(place)]
    if held:
        raise EnvironmentProblem(
            f"Records of other code are not alike and are to be made anew, but a process is at work in "
            f"{str(held[0])!r}. Wait for it or end it, and give the same command again."
        )
    with atomic.writable(aside):
        for folder in folders:
            _move(folder, aside / folder.relative_to(whole.config.out / "records"))
            forget(folder)
    return len(moved)


def _put_table_aside(folder: Path, aside: Path) -> None:
    """What a run made of records that are gone is no finished table to be kept: new ones may have other points."""
    with atomic.writable(aside):
        for name in (*outputs_of(folder), MANIFEST):
            if (folder / name).is_file():
                _move(folder / name, aside / "runs" / folder.name / name)


def _move(path: Path, target: Path) -> None:
    while target.exists():
        target = target.with_name(f"{target.name}.before")
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)
