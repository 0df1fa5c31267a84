"""`adaptive-bench generate`, `export-model` and `lm-eval`: use a trained model, or share it."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_bench.cli import options
from adaptive_bench.cli.terminal_text import paragraph, percent, plain_table
from adaptive_bench.errors import UsageError
from adaptive_bench.progress import say
from adaptive_bench.store import atomic
from adaptive_bench.store.runs import read_json
from adaptive_bench.validation import LARGEST_SEED

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel
    from adaptive_bench.spec import MethodSpec


def generate(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN|FOLDER",
            autocompletion=options.run_names,
            help="Name or folder of a run, or `last` (then with --method); or folder of a saved model.",
        ),
    ],
    prompts: Annotated[list[str], typer.Argument(help="Text to continue; several are written together.")],
    saving: Annotated[
        float | None, typer.Option(help="Share of token-branches to skip, for example 0.15; default: as saved.")
    ] = None,
    dial: Annotated[float | None, typer.Option(help="The method's own dial value instead.")] = None,
    method: Annotated[
        str | None, typer.Option(help="Method spec: which of a run, or how to use the weights of a saved model.")
    ] = None,
    calibration: Annotated[
        str, typer.Option(help="Which of several stored calibrations: a task, or `pooled`.")
    ] = "auto",
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Most tokens to write.")] = 64,
    stop_strings: Annotated[
        list[str] | None, typer.Option(help="Stop after this text, which is kept as the end; may be repeated.")
    ] = None,
    chat_template: Annotated[
        bool, typer.Option("--chat-template", help="Put each prompt as a user's turn into the model's chat template.")
    ] = False,
    system_prompt: Annotated[str | None, typer.Option(help="With --chat-template: the system's turn.")] = None,
    enable_thinking: Annotated[
        bool | None, typer.Option(help="With --chat-template: its setting for thinking; default: the template's own.")
    ] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 writes the likeliest token, above 0 samples.")] = 0.0,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Sample from the likeliest tokens only.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the sampling.")] = 0,
    device: options.Device = "auto",
    as_json: options.AsJson = False,
    plugin: options.Plugins = None,
    out: options.Out = options.DEFAULT_OUT,
) -> None:
    """Continue prompts with a trained model; the last line, on stderr, says what was saved."""
    source = options.open_run(run, out, plugin)
    if saving is not None and dial is not None:
        raise UsageError(f"A model has one dial, got --saving {saving:g} and --dial {dial:g}. Give one of them.")
    options.check_goes_with("--system-prompt", bool(system_prompt), "--chat-template", chat_template)
    options.check_goes_with("--enable-thinking", enable_thinking is not None, "--chat-template", chat_template)
    import torch

    from adaptive_bench.model import AdaptiveModel, stored_calibration
    from adaptive_bench.model.saving import load_tokenizer
    from adaptive_bench.model.tokenization import conversation
    from adaptive_bench.runs.backbone_source import find_device
    from adaptive_bench.runs.trained import check_has_dials, find_model, quantized_as

    folder, sparing = find_model(source, method)
    model = AdaptiveModel.from_pretrained(folder, method, calibration=calibration, **sparing).to(find_device(device))
    if saving is not None or dial is not None:
        check_has_dials(source, model, stored_calibration.names(folder, model.spec))
    if saving is not None:
        model.saving = saving
    if dial is not None:
        model.dial = dial
    # Set `do_sample` in both cases, because a model's own generation config may ask for samples.
    sampling = {"do_sample": True, "temperature": temperature, "top_p": top_p} if temperature else {"do_sample": False}
    generator = torch.Generator(device=model.device).manual_seed(seed)
    tokenizer, asked = load_tokenizer(folder), prompts
    if chat_template:
        # Not every template has a system's turn, so an empty one is left out.
        system = [{"role": "system", "content": system_prompt}] if system_prompt else []
        turns = [[*system, {"role": "user", "content": prompt}] for prompt in prompts]
        asked = [conversation(tokenizer, turn, enable_thinking=enable_thinking) for turn in turns]
    texts = _continue(
        model,
        tokenizer,
        asked,
        add_special_tokens=False if chat_template else None,  # the template has written them
        max_new_tokens=max_new_tokens,
        stop_strings=stop_strings,
        generator=generator,
        **sampling,
    )
    report: Any = model.compute_report()
    if (form := quantized_as(source)) != "none":
        note = f"Note: the model is taken as it was trained; this run evaluated with --quantize {form}."
        typer.echo(paragraph(note), err=True)
    # A saved model keeps its dial, so it may skip without either option.
    as_saved = saving is None and dial is None and model.method.value == model.method.dial.skip_nothing
    if as_saved and model.method.max_saving:
        typer.echo("Nothing was skipped. Give --saving, a share such as 0.15, or --dial.", err=True)
    if as_json:
        found = {
            "method": str(model.spec),
            "dial": model.dial,
            "claimed_saving": model.method.claimed_saving,
            "texts": [{"prompt": prompt, "text": text} for prompt, text in zip(prompts, texts, strict=True)],
            "report": report,
        }
        typer.echo(atomic.json_text(found), nl=False)
        return
    for prompt, text in zip(prompts, texts, strict=True):
        typer.echo(text if len(prompts) == 1 else f"> {prompt}\n{text}\n")
    typer.echo(saved_line(report), err=True)


def _continue(
    model: AdaptiveModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[str],
    add_special_tokens: bool | None,
    **settings: Any,
) -> list[str]:
    """The new text after each prompt; prompts are encoded and texts end as in evaluation."""
    from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
    from adaptive_bench.model.generation import padded
    from adaptive_bench.model.hugging_face import ENDS_WITH_CONTEXT

    lm = AdaptiveLM(model, tokenizer, batch_size=len(prompts))  # for its encoding and end tokens alone
    rows = [lm.tok_encode(prompt, add_special_tokens) or [lm.prefix_token_id] for prompt in prompts]
    # [B, S], padded on the left so that new tokens directly follow every prompt.
    input_ids, attention_mask = padded(rows, model.device, left=True)
    with warnings.catch_warnings(record=True) as told:
        # Commands silence warnings (`options.Command`); this one is printed as a note.
        warnings.filterwarnings("always", message=ENDS_WITH_CONTEXT)
        output_ids = model.generate(
            input_ids,
            attention_mask=attention_mask,
            eos_token_id=list(lm.end_tokens),
            pad_token_id=lm.eot_token_id,
            tokenizer=tokenizer,
            **settings,
        )
    for said in (str(one.message) for one in told):
        if said.startswith(ENDS_WITH_CONTEXT):
            typer.echo(paragraph(f"Note: {said}"), err=True)
    return [lm.text_of(row) for row in output_ids[:, input_ids.shape[1] :].tolist()]


def saved_line(report: dict[str, Any]) -> str:
    """A line of at most 80 columns with the shares of tokens and net FLOPs saved: overall, in reading, in writing."""
    parts = []
    for phase, name in (("prefill", "read"), ("decode", "written")):
        tokens, shares = report["counts"][phase]["tokens"], report[phase]
        parts.append(f"{tokens} {name} {percent(shares['tokens'])} / {percent(shares['net'])}")
    saved = report["saved"]
    return f"saved {percent(saved['tokens'])} % tokens, {percent(saved['net'])} % net ({', '.join(parts)})"


def export_model(
    run: options.Run,
    method: Annotated[str, typer.Option(help="Which method spec of the run.")],
    to: Annotated[Path, options.to_folder("Folder to write; it must not exist.")],
    without_layers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Write a plain model instead, without this many layers: those that static depth leaves out."
        ),
    ] = None,
    calibration: Annotated[
        str, typer.Option(help="With --without-layers: which of several stored calibrations, a task or `pooled`.")
    ] = "auto",
    plugin: options.Plugins = None,
    out: options.Out = options.DEFAULT_OUT,
) -> None:
    """Copy a method's model of the first seed, with calibrations, tokenizer and a model card, ready to be uploaded.

    If the method does not change a backbone of the hub, the folder holds only what was added and names the backbone.
    With --without-layers it is a plain Hugging Face model, so that `run --model` can put methods on a pruned backbone.
    """
    folder = options.open_run(run, out, plugin)
    from adaptive_bench.method import starting_spec, training_spec
    from adaptive_bench.model import AdaptiveModel, stored_calibration
    from adaptive_bench.model.saving import Pretrained, load_tokenizer, model_card
    from adaptive_bench.runs.backbone_source import find_backbone
    from adaptive_bench.runs.trained import config_of, find_model, quantized_as
    from adaptive_bench.spec import MethodSpec

    if to.exists():
        raise UsageError(f"A model is exported into a new folder, got {str(to)!r}, which exists. Name another one.")
    if (form := quantized_as(folder)) != "none":
        raise UsageError(
            f"A model is exported as it was trained, with the table of its scores, but this run evaluated with "
            f"--quantize {form}: its table and dial values belong to other weights. Give the same run without "
            f"--quantize, which finds its trainings again, and name that one."
        )
    spec, (found, how) = MethodSpec.parse(method), find_model(folder, method)
    backbone = find_backbone(config_of(folder).model)
    if without_layers is not None:
        model = AdaptiveModel.from_pretrained(found, spec, calibration=calibration, **how)
        _write_pruned(model, without_layers, to, load_tokenizer(found))
        return
    # Calibrations are copied as files below, all of them; the model itself needs none.
    model = AdaptiveModel.from_pretrained(found, spec, calibration=None, **how)
    known = stored_calibration.names(found, spec)
    if model.needs_calibration and not known and (why := stored_calibration.why_none(found, spec)) is not None:
        raise why
    for name in known:  # report a damaged calibration now, not when the exported model is used
        stored_calibration.read(found, spec, name)
    card = model_card(
        model,
        title=to.name,
        base=backbone.name if backbone.revision else None,  # only a model of the hub can be linked to
        calibrations=known,
        results=_results(folder, spec),
    )
    with atomic.new_folder(to) as temporary:
        # Weights are the hub's only if the training froze them and started from no other training.
        untouched = model.method.freezes_backbone and starting_spec(training_spec(spec)) is None
        hub = Pretrained.at(backbone.location, backbone.revision) if untouched and not backbone.is_local else None
        model.save_pretrained(temporary, load_tokenizer(found), pretrained=hub)
        stored_calibration.copy(found, temporary, spec)
        atomic.write_text(temporary / "README.md", card)
    typer.echo(f"Wrote {to}")


def _write_pruned(model: AdaptiveModel, layers: int, to: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write the backbone without a number of layers, with its tokenizer."""
    from adaptive_bench.model.compression import pruned

    if not model.method.skips_whole_layers:
        raise UsageError(
            f"--without-layers is for a method whose dial is a number of layers, got {model.spec}. Name static_depth, "
            f"for example `--method 'static_depth[rule=bi]'`, of a run that has it."
        )
    model.dial = layers  # such a method's dial is the number of layers that it leaves out
    plain = pruned(model)
    with atomic.new_folder(to) as temporary:
        plain.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    gone = ", ".join(map(str, plain.config.pruned_layers))
    typer.echo(f"Wrote {to}, without layers {gone} of {model.backbone.num_layers}")


def _results(run: Path, spec: MethodSpec) -> str:
    """The run's scores of this method and of the dense model, as a Markdown table."""
    table = run / "table.json"
    if not table.is_file():
        return ""
    ours = str(replace(spec, semantics="bench")), spec.semantics  # rows keep the semantics apart from the name
    lines = []
    for row in read_json(table):
        if (row["method"], row["semantics"]) in (ours, ("dense", "bench")) and row["score"] is not None:
            name = row["method"] if row["semantics"] == "bench" else f"{row['method']}@{row['semantics']}"
            lines.append(
                [name, row["task"], row["metric"], f"{100 * (row['saved'] or 0):.1f} %", f"{row['score']:.4f}"]
            )
    return plain_table(lines, ["method", "task", "metric", "saved", "score"], tablefmt="github")


def lm_eval(context: typer.Context) -> None:
    """lm-eval's command line with the model `adaptive` and the tasks of `list tasks`.

    `adaptive-bench lm-eval run --model adaptive --model_args pretrained=DIR,saving=0.15 --tasks piqa`: every option is
    lm-eval's; `model_args` takes saving or dial, spec, calibration, dtype. Without `--device` a GPU is used if there is
    one. If a task of this package and one of lm-eval have the same name, this package's is used.
    """
    from lm_eval._cli import HarnessCLI
    from lm_eval.utils import setup_logging

    sys.argv = ["lm_eval", *context.args]  # which its command line reads
    command: Any = HarnessCLI()
    arguments = command.parse_args()
    if arguments.command == "run":
        _complete(arguments)
    from lm_eval import tasks

    from adaptive_bench.evaluation.lm_eval_registration import SuiteTasks  # also registers the model

    tasks.TaskManager = SuiteTasks  # lm-eval's subcommands import it by this name when they run
    setup_logging()
    command.execute(arguments)


def _complete(arguments: argparse.Namespace) -> None:
    """Complete arguments: the names of tasks, and the device if none is given."""
    from lm_eval.config.evaluate_config import EvaluatorConfig

    from adaptive_bench.evaluation.lookup import names_for_lm_eval

    in_file = EvaluatorConfig.load_yaml_config(arguments.config) if arguments.config else {}

    def given(name: str) -> Any:
        value = getattr(arguments, name, None)
        return in_file.get(name) if value in (None, "") else value

    included, named = given("include_path"), given("tasks") or []
    names = [name for part in ([named] if isinstance(named, str) else named) for name in str(part).split(",") if name]
    if not names:
        raise UsageError("lm-eval run asks tasks, got none. Name them with --tasks, for example --tasks piqa.")
    meant = {name: names_for_lm_eval(name, included) for name in names}  # before torch is imported, for a typo

    from adaptive_bench.evaluation.lm_eval_registration import NAME
    from adaptive_bench.hardware import find_device

    arguments.tasks = [name for found in meant.values() for name in found]
    for name, found in meant.items():
        if found != [name]:
            say(f"{name} stands for {', '.join(found)} here.", sys.stderr)
    if (model := given("model")) is None:
        raise UsageError(f"lm-eval's own default is another model, got no --model. Give --model {NAME}.")
    if model != NAME:
        return
    for_model = given("model_args")
    # lm-eval's command line makes a mapping of them; a text in a YAML file is left to lm-eval.
    own = for_model.get("device") if isinstance(for_model, Mapping) else None
    device = arguments.device or own or in_file.get("device")
    arguments.device = str(find_device(str(device or "auto")))
    if device is None:
        say(f"No --device is given: the model runs on {arguments.device}.", sys.stderr)
