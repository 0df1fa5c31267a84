"""`adaptive-bench export-decisions`: which token executed which branch on a task's documents, for other engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptive_bench import output, registry
from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.named_run import Run, manifest_of
from adaptive_bench.cli.samples import axis_of, documents, evaluations_of
from adaptive_bench.cli.waiting import load_libraries
from adaptive_bench.errors import UsageError
from adaptive_bench.spec import parse_specs
from adaptive_bench.store.results import read_run

_ENDINGS = (".jsonl", ".safetensors")


def export_decisions(
    run: Run,
    method: Annotated[str, typer.Option(help="Which method spec of the run.")],
    to: Annotated[
        Path,
        typer.Option("--output", "-o", parser=output.file, help="The file: .jsonl, or .safetensors for long texts."),
    ] = output.STDOUT,
    task: Annotated[str | None, typer.Option(help="Which task; needed where the run has several.")] = None,
    level: Annotated[
        float, typer.Option(help="A saving on the axis of the run's table: the measured point next to it.")
    ] = 0.15,
    docs: Annotated[int | None, typer.Option(min=1, help="How many documents; by default all.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda:0, ...")] = "auto",
    plugin: Annotated[list[Path] | None, typer.Option(help="Python file the run was made with.")] = None,
) -> None:
    """Write keep masks, tokens by branches, of prompts and of what a method wrote or chose, in the first seed.

    Another engine replays them on the same weights: docs/decisions.md has the format and what has to be kept to.
    """
    registry.load_plugins(plugin)
    if to != output.STDOUT and to.suffix not in ("", *_ENDINGS):  # a pipe's name has no ending
        raise UsageError(f"-o is a file that ends in one of {', '.join(_ENDINGS)}, got {str(to)!r}. Name such a file.")
    output.check(to)
    known = manifest_of(run)
    if len(specs := parse_specs(method)) != 1:
        raise UsageError(f"One method is exported at a time, got --method {method!r}. Name one spec of the run.")
    one, *_ = evaluations_of(known, task, method, option="--method")
    found = documents(known, [one], level, axis_of(run)[0])[:docs]
    if not found or any(each.prompt is None for each in found):
        raise UsageError(
            f"Decisions are exported for prompts with an answer, but the documents of {one.task} have none on record. "
            f"Name a task whose answers are written or chosen, of a run of this version."
        )
    asked = found[0].answers[0].asked
    load_libraries()
    from adaptive_bench.evaluation.language_model import AdaptiveLM
    from adaptive_bench.model import AdaptiveModel, stored_calibration
    from adaptive_bench.model.saving import load_tokenizer
    from adaptive_bench.runs.outcome.exported_decisions import decisions_of, sites_of
    from adaptive_bench.runs.outcome.trained import find_checkpoint, find_sparing, quantized_as
    from adaptive_bench.runs.planning.backbones import find_device
    from adaptive_bench.store import decision_files

    if (form := quantized_as(run)) != "none":
        raise UsageError(
            f"Decisions are exported of models as they were trained, but this run evaluated with --quantize {form}, "
            "and those it measured are of other weights. Name the same run without --quantize."
        )
    folder = find_checkpoint(run, method)
    (spec,) = specs
    stored = [name for name in (one.task, stored_calibration.POOLED) if name in stored_calibration.names(folder, spec)]
    how = find_sparing(run, method)
    model = AdaptiveModel.from_pretrained(folder, spec, calibration=stored[0] if stored else None, **how)
    model = model.to(find_device(device)).eval()
    point = known.record_of(one).measured(asked)
    model.dial = point.dial
    lm = AdaptiveLM(model, load_tokenizer(folder), batch_size=1)
    texts = [
        (
            each.doc,
            lm.tok_encode(each.prompt or "") or [lm.prefix_token_id],
            lm.tok_encode(each.answers[0].output, add_special_tokens=False),
        )
        for each in found
    ]
    decided, complete = decisions_of(model, one.task, texts)
    header = {
        "method": str(spec),
        "model": read_run(run / "config.yaml")["model"],
        "record": one.record,
        "task": one.task,
        "asked": asked,
        "dial": point.dial,
        "kv_policy": model.method.kv_policy,
        "complete": complete,
        "sites": sites_of(model),
    }
    if to.suffix == ".safetensors":
        output.write_bytes(to, decision_files.as_safetensors(header, decided))
    else:
        output.write_text(to, decision_files.as_json_lines(header, decided))
    kept = sum(int(each.keep.sum()) for each in decided) / sum(each.keep.size for each in decided)
    about = f"{len(decided)} documents of {one.task}, {1 - kept:.1%} of the token-branches skipped"
    about += f", written to {output.named(to)}"
    typer.echo(about, err=output.is_stdout(to))
    if not complete:
        typer.echo(
            paragraph(
                f"Note: {spec} does more to its backbone than the file says (a gate for each feature, a scaled input, "
                f"or something in place of a skipped branch). A replay needs its weights for that: `export-model`."
            ),
            err=True,
        )
