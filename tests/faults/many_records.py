"""Plan, status, table, run, export and page with 10,000 trainings on disk: processor time and memory of each.

    python tests/faults/many_records.py --cells 10000 --home /tmp/many        # the folder is used again if it is there

One small training is done and evaluated; every other record has the same files and a configuration of its own. Time is
that of the processor, without the import of the libraries.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SEEDS = 10  # each has training text of its own, which the nano task makes anew for every plan (0.1 s)


def make_config(out: Path, home: Path, trainings: int) -> Any:
    """`cells` trainings of one method with as many weights as needed."""
    from adaptive_bench.config import RunConfig
    from adaptive_bench.recipe import EvalRecipe, TrainRecipe
    from adaptive_bench.testing.model_folder import write_model_folder

    model = home / "model"
    if not model.is_dir():
        write_model_folder(model)
    seeds = min(SEEDS, trainings)
    return RunConfig(
        methods=tuple(f"gateskip[sparsity_weight={0.01 * (number + 1):.6g}]" for number in range(trainings // seeds)),
        tasks=("nano_qa_ll",),
        model=str(model),
        out=out,
        seeds=seeds,
        levels=(0.0, 0.1),
        match_on="tokens",
        device="cpu",
        train=TrainRecipe(steps=2, batch_size=2, warmup_steps=1, max_length=400),
        evaluation=EvalRecipe(batch_size=4, limit=4, calibration_examples=4, grid=(0.0, 0.2)),
    )


def fill(whole: Any, template: Path) -> None:
    """Give every piece of work of a plan the record and the files of a finished one."""
    sweep_template = next((template / "eval").iterdir())
    for works, source, beside in (
        (whole.trainings, template, "train.jsonl"),
        (whole.sweeps, sweep_template, "documents.jsonl"),
    ):
        about = json.loads((source / "record.json").read_text())
        for work in works:
            if (work.folder / "record.json").exists():
                continue
            work.folder.mkdir(parents=True, exist_ok=True)
            behaviour = {"sha256": hashlib.sha256(str(work.spec).encode()).hexdigest()}
            record = {**about, "config": work.content, "behaviour": behaviour}
            (work.folder / "record.json").write_text(json.dumps(record, indent=2))
            os.link(source / beside, work.folder / beside)
    for training in whole.trainings:
        (training.folder / "checkpoint").mkdir(exist_ok=True)


def timed(name: str, work: Callable[[], Any]) -> Any:
    """Do something and say what it took."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    found = work()
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({name: {"cpu_s": round(cpu_s, 2), "wall_s": round(wall_s, 2), "most_mb": round(memory_mb)}}))
    sys.stdout.flush()
    return found


def main() -> None:
    """Make the records, then measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--home", type=Path, help="Where the records are; by default a folder that is deleted.")
    parser.add_argument("--profile", action="store_true", help="Print where each part spends its time.")
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory() as temporary:
        measure((given.home or Path(temporary)).resolve(), given.cells, given.profile)


def measure(home: Path, trainings: int, profile: bool) -> None:
    """Everything."""
    from adaptive_bench.leaderboard.site import build as build_page
    from adaptive_bench.runs import plan, run
    from adaptive_bench.runs.outcome.naming import run_folder
    from adaptive_bench.runs.outcome.table import outcome_of
    from adaptive_bench.store.overview import pieces
    from adaptive_bench.store.results import load_results

    home.mkdir(parents=True, exist_ok=True)
    small = make_config(home / "small", home, 1)
    run(small, jobs=1)
    config = make_config(home / "out", home, trainings)
    fill(timed("first plan", lambda: plan(config)), plan(small).trainings[0].folder)
    steps: dict[str, Callable[[], Any]] = {
        "plan": lambda: plan(config),
        "status": lambda: list(pieces(config.out)),
        "table": lambda: outcome_of(plan(config)),
        "first run": lambda: run(config, jobs=1),
        "run": lambda: run(config, jobs=1),
        "table again": lambda: run(config, table_only=True),
        "export": lambda: load_results(out=config.out),
        "page": lambda: build_page([run_folder(config) / "table.json"], home / "site"),
    }
    for name, step in steps.items():
        if not profile:
            timed(name, step)
            continue
        import cProfile
        import pstats

        profiler = cProfile.Profile()
        profiler.runcall(timed, name, step)
        pstats.Stats(profiler).sort_stats("cumtime").print_stats(25)


if __name__ == "__main__":
    main()
