"""Gets a run ready: what is to be done is planned, checked and written down."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, UsageError, message_of
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.checks.preflight import Preflight, preflight
from adaptive_bench.runs.outcome.naming import write_beginning
from adaptive_bench.runs.outcome.run_json import holds_finished_table
from adaptive_bench.runs.planning.backbones import find_backbone
from adaptive_bench.runs.planning.eligible import measured_sites
from adaptive_bench.runs.planning.manifest import manifest_of, plan_on_disk
from adaptive_bench.runs.planning.plan import plan, without_groups
from adaptive_bench.runs.planning.shard import Shard
from adaptive_bench.runs.work.overwrite import Overwrite, remove_results
from adaptive_bench.store.manifest import read


def prepare(
    config: RunConfig,
    reporter: Reporter,
    folder: Path,
    jobs: int | None,
    shard: Shard,
    overwrite: Overwrite,
) -> Preflight:
    """Check everything that a run will need; what is to be made anew is removed."""
    if overwrite is Overwrite.always:
        with suppress(EnvironmentProblem, UsageError):  # what is wrong is told below
            measured_sites(without_groups(config), find_backbone(config.model), reporter)
        # What is refused is refused before anything is gone; no record is asked, as it may be what is damaged.
        preflight(config.model_copy(update={"out": config.out / "overwritten"}), reporter, jobs, timed=False)
        remove_results(plan(config), shard)
    known = preflight(config, reporter, jobs, timed=shard.is_whole)
    return _begun(folder, config, reporter, known, overwrite)


def prepare_table(config: RunConfig, reporter: Reporter, folder: Path, *, from_manifest: bool) -> Preflight:
    """What there is to make a table of. Where results are does not depend on what is here to compute others.

    Args:
        from_manifest: Whether the run's own list of its records is asked before anything is planned.
    """
    known = plan_on_disk(folder, config, reporter) if from_manifest else None
    return _begun(folder, config, reporter, Preflight(known or plan(config, reporter)), Overwrite.only_cache)


def _begun(folder: Path, config: RunConfig, reporter: Reporter, known: Preflight, overwrite: Overwrite) -> Preflight:
    """Write down what the run is; the list of a finished run stays until there is another whole table."""
    for note in known.notes:
        reporter.line(f"Note: {note}")
    write_beginning(folder, config, computes=overwrite is not Overwrite.only_cache)
    if not (holds_finished_table(folder) and _has_list(folder, reporter)):
        manifest_of(known.plan).write(folder)
    return known


def _has_list(folder: Path, reporter: Reporter) -> bool:
    try:
        return read(folder) is not None
    except EnvironmentProblem as problem:
        reporter.line(f"{message_of(problem)} That is done now.")
        return False
