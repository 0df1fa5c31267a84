"""`adaptive-bench generate`: write text with a trained model and say what was saved."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_bench import registry
from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.named_run import named, naming_plugins, run_names
from adaptive_bench.errors import UsageError
from adaptive_bench.validation import LARGEST_SEED

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel


def generate(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FOLDER",
            parser=named,
            autocompletion=run_names,
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
        str, typer.Option(help="Of several stored calibrations this one: a task, or `pooled`.")
    ] = "auto",
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Most tokens to write.")] = 64,
    stop_strings: Annotated[
        list[str] | None, typer.Option(help="Text that ends what is written, and is its end; may be repeated.")
    ] = None,
    chat_template: Annotated[
        bool, typer.Option("--chat-template", help="Prompts are a user's turns in the model's own chat template.")
    ] = False,
    system_prompt: Annotated[str | None, typer.Option(help="With --chat-template: the system's turn.")] = None,
    enable_thinking: Annotated[
        bool | None, typer.Option(help="With --chat-template: given to it; default: as the template says.")
    ] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 writes the likeliest token, above 0 samples.")] = 0.0,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Sample from the likeliest tokens only.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of the sampling.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda:0, ...")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print texts and the compute report as JSON.")] = False,
    plugin: Annotated[list[Path] | None, typer.Option(help="Python file that registers the method.")] = None,
) -> None:
    """Continue prompts with a trained model; what was saved is said on the last line, on stderr."""
    registry.load_plugins(plugin)
    if saving is not None and dial is not None:
        raise UsageError(f"A model has one dial, got --saving {saving:g} and --dial {dial:g}. Give one of them.")
    if not chat_template and (system_prompt or enable_thinking is not None):
        raise UsageError("A system prompt and thinking go into a chat template, got none: add --chat-template.")
    from adaptive_bench.recipe import LEAST_TEMPERATURE

    if 0 < temperature < LEAST_TEMPERATURE:
        raise UsageError(
            f"--temperature is 0, for the likeliest token, or at least {LEAST_TEMPERATURE:g}, got {temperature:g}. "
            f"Give 0."
        )
    import torch

    from adaptive_bench.model import AdaptiveModel, stored_calibration
    from adaptive_bench.model.saving import load_tokenizer
    from adaptive_bench.model.tokenization import conversation
    from adaptive_bench.runs.outcome.trained import check_has_dials, find_checkpoint, find_sparing, quantized_as
    from adaptive_bench.runs.planning.backbones import find_device

    with naming_plugins(checkpoint):
        folder = find_checkpoint(checkpoint, method)
        model = AdaptiveModel.from_pretrained(
            folder, method, calibration=calibration, **find_sparing(checkpoint, method)
        )
    model = model.to(find_device(device))
    if saving is not None or dial is not None:
        check_has_dials(checkpoint, model, stored_calibration.names(folder, model.spec))
    if saving is not None:
        try:
            model.saving = saving
        except UsageError as error:  # its next step is one of Python
            if not (rule := _askable(model, folder, calibration)):
                raise
            raise UsageError(f"{rule.rstrip('.')}, got {saving:g}. Give such a share, or a --dial.") from error
    if dial is not None:
        model.dial = dial
    # Said either way: a model's own generation config may ask for samples.
    sampling = {"do_sample": True, "temperature": temperature, "top_p": top_p} if temperature else {"do_sample": False}
    generator = torch.Generator(device=model.device).manual_seed(seed)
    tokenizer, asked = load_tokenizer(folder), prompts
    if chat_template:
        system = [{"role": "system", "content": system_prompt}] if system_prompt else []
        turns = [[*system, {"role": "user", "content": prompt}] for prompt in prompts]
        asked = [conversation(tokenizer, turn, enable_thinking=enable_thinking) for turn in turns]
    texts = _continue(
        model,
        tokenizer,
        asked,
        add_special_tokens=False if chat_template else None,
        max_new_tokens=max_new_tokens,
        stop_strings=stop_strings,
        generator=generator,
        **sampling,
    )
    report: Any = model.compute_report()
    if (form := quantized_as(checkpoint)) != "none":
        note = f"Note: the model is taken as it was trained; this run evaluated with --quantize {form}."
        typer.echo(paragraph(note), err=True)
    if saving is None and dial is None and (hint := _saves_nothing(model, folder, calibration)):
        typer.echo(paragraph(hint), err=True)
    if as_json:
        found = {
            "method": str(model.spec),
            "dial": model.dial,
            "claimed_saving": model.method.claimed_saving,
            "texts": [{"prompt": prompt, "text": text} for prompt, text in zip(prompts, texts, strict=True)],
            "report": report,
        }
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))
        return
    for prompt, text in zip(prompts, texts, strict=True):
        typer.echo(text if len(prompts) == 1 else f"> {prompt}\n{text}\n")
    typer.echo(saved_line(report), err=True)


def _saves_nothing(model: AdaptiveModel, folder: Path, calibration: str) -> str:
    """Which savings can be asked for, of a model whose dial stands where nothing is skipped; else an empty text."""
    method = model.method
    asks = method.value == method.dial.skip_nothing and _askable(model, folder, calibration)
    return f"Nothing was skipped: {asks}" if asks else ""


def _askable(model: AdaptiveModel, folder: Path, calibration: str) -> str:
    """Which savings can be asked for, a sentence; an empty text where there are none."""
    from adaptive_bench.model import stored_calibration

    method = model.method
    if not method.max_saving:
        return ""
    if not model.needs_calibration:
        return f"--saving takes a share from 0 to {method.max_saving:.3g} (0.15 is 15 %)."
    known = stored_calibration.names(folder, model.spec)
    most = {
        name: _rounded_down(max(stored_calibration.read(folder, model.spec, name).dials, default=0)) for name in known
    }
    chosen = stored_calibration.choose(folder, model.spec, calibration)
    if chosen is not None:
        return f"--saving takes a share up to {most[chosen]:g}, as calibrated on {chosen}."
    if known:
        listed = ", ".join(f"{name} (up to {most[name]:g})" for name in known)
        return f"--saving takes a share that the stored --calibration reaches, one of {listed}."
    return "--saving takes a share that this saved model was calibrated for; no run stored others."


def _rounded_down(share: float) -> float:
    """To a number that can be typed, and that is calibrated still."""
    return math.floor(1000 * share) / 1000


def _continue(
    model: AdaptiveModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[str],
    add_special_tokens: bool | None,
    **settings: Any,
) -> list[str]:
    """New text after each prompt, encoded and ended as in evaluation."""
    from adaptive_bench.evaluation.language_model import AdaptiveLM
    from adaptive_bench.model.generation import padded
    from adaptive_bench.model.hugging_face_generation import ENDS_WITH_CONTEXT

    lm = AdaptiveLM(model, tokenizer, batch_size=len(prompts))
    rows = [lm.tok_encode(prompt, add_special_tokens) or [lm.prefix_token_id] for prompt in prompts]
    input_ids, attention_mask = padded(rows, model.device, left=True)
    with warnings.catch_warnings(record=True) as told:
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
    """What was saved in all, reading the prompt, and writing: shares of tokens and of net FLOPs, in 80 columns."""

    def percent(share: float | None) -> str:
        return "n/a" if share is None else f"{100 * share:.1f}"

    parts = []
    for phase, name in (("prefill", "read"), ("decode", "written")):
        tokens, shares = report["counts"][phase]["tokens"], report[phase]
        parts.append(f"{tokens} {name} {percent(shares['tokens'])} / {percent(shares['net'])}")
    saved = report["saved"]
    return f"saved {percent(saved['tokens'])} % tokens, {percent(saved['net'])} % net ({', '.join(parts)})"
