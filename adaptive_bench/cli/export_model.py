"""`adaptive-bench export-model`: a trained model of a run as a folder to share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_bench import output, registry
from adaptive_bench.cli.named_run import Run
from adaptive_bench.errors import UsageError
from adaptive_bench.store import atomic
from adaptive_bench.store.results import read_table

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel
    from adaptive_bench.spec import MethodSpec


def export_model(
    run: Run,
    method: Annotated[str, typer.Option(help="Which method spec of the run.")],
    to: Annotated[
        Path,
        typer.Option("--output", "-o", parser=output.new_folder, help="Folder to write; it must not exist."),
    ],
    without_layers: Annotated[
        int | None,
        typer.Option(
            min=1, help="A plain model instead, without the layers that static depth leaves out at this number."
        ),
    ] = None,
    calibration: Annotated[
        str, typer.Option(help="With --without-layers: of several stored calibrations this one, a task or `pooled`.")
    ] = "auto",
    plugin: Annotated[list[Path] | None, typer.Option(help="Python file the run was made with.")] = None,
) -> None:
    """Copy a method's model of the first seed, with calibrations, tokenizer and a model card, ready to be uploaded.

    Where the method leaves a backbone of the hub as it is, the folder names that backbone and holds what was added.
    With --without-layers it is a plain Hugging Face model, which `run --model` takes: a method on a pruned backbone.
    """
    registry.load_plugins(plugin)
    from adaptive_bench.method import starting_spec, training_spec
    from adaptive_bench.model import AdaptiveModel, stored_calibration
    from adaptive_bench.model.hub_models import Pretrained, model_card
    from adaptive_bench.model.saving import load_tokenizer
    from adaptive_bench.runs.outcome.trained import config_of, find_checkpoint, find_sparing, quantized_as
    from adaptive_bench.runs.planning.backbones import find_backbone
    from adaptive_bench.spec import MethodSpec

    if to.exists():
        raise UsageError(f"A model is exported into a new folder, got {str(to)!r}, which exists. Name another one.")
    if (form := quantized_as(run)) != "none":
        raise UsageError(
            f"A model is exported as it was trained, with the table of what it scored so, but this run evaluated with "
            f"--quantize {form}: its table and dial values are of other weights. Give the same run without --quantize, "
            f"which finds its trainings again, and name that one."
        )
    spec, found, backbone = MethodSpec.parse(method), find_checkpoint(run, method), find_backbone(config_of(run).model)
    how = find_sparing(run, method)
    if without_layers is not None:
        model = AdaptiveModel.from_pretrained(found, spec, calibration=calibration, **how)
        _write_pruned(model, without_layers, to, backbone.name, load_tokenizer(found))
        return
    model = AdaptiveModel.from_pretrained(found, spec, calibration=None, **how)
    known = stored_calibration.names(found, spec)
    if model.needs_calibration and not known and (why := stored_calibration.why_none(found, spec)) is not None:
        raise why
    for name in known:  # a damaged one is told now, not to whoever uses the model
        stored_calibration.read(found, spec, name)
    card = model_card(
        model,
        title=to.name,
        base=backbone.name if backbone.revision else None,
        calibrations=known,
        results=_results(run, spec),
    )
    with atomic.new_folder(to) as temporary:
        untouched = model.method.freezes_backbone and starting_spec(training_spec(spec)) is None
        hub = Pretrained.at(backbone.location, backbone.revision) if untouched and not backbone.is_local else None
        model.save_pretrained(temporary, load_tokenizer(found), pretrained=hub)
        stored_calibration.copy(found, temporary, spec)
        atomic.write_text(temporary / "README.md", card)
    typer.echo(f"Wrote {to}: {_megabytes(to)}")


def _write_pruned(model: AdaptiveModel, layers: int, to: Path, base: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """The backbone without a number of layers, with tokenizer and a card of two sentences."""
    from adaptive_bench.model.compression import pruned

    if not model.method.skips_whole_layers:
        raise UsageError(
            f"--without-layers is for a method whose dial is a number of layers, got {model.spec}. Name static_depth, "
            f"for example `--method 'static_depth[rule=bi]'`, of a run that has it."
        )
    if layers >= model.backbone.num_layers:
        raise UsageError(
            f"--without-layers is from 1 to {model.backbone.num_layers - 1}, so that one layer stays, got {layers}. "
            f"Give fewer."
        )
    model.dial = layers
    plain = pruned(model)
    gone = ", ".join(map(str, plain.config.pruned_layers))
    with atomic.new_folder(to) as temporary:
        plain.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        card = (
            f"# {to.name}\n\n{base} without {layers} of its {model.backbone.num_layers} layers, those that "
            f"`{model.spec}` leaves out: {gone}, counted from 0. A plain model of transformers.\n"
        )
        atomic.write_text(temporary / "README.md", card)
    typer.echo(f"Wrote {to}, without layers {gone} of {model.backbone.num_layers}: {_megabytes(to)}")


def _megabytes(folder: Path) -> str:
    return f"{sum(file.stat().st_size for file in folder.rglob('*') if file.is_file()) / 1e6:.1f} MB"


def _results(run: Path, spec: MethodSpec) -> str:
    """The run's tables, this method beside the dense model."""
    table = run / "table.json"
    if not table.is_file() or "markdown" not in registry.names("leaderboards"):
        return ""
    ours = str(replace(spec, semantics="bench")), spec.semantics  # as rows name a spec
    rows = [row for row in read_table(table) if (row["method"], row["semantics"]) in (ours, ("dense", "bench"))]
    return str(registry.get("leaderboards", "markdown")(rows))
