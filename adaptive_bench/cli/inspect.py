"""`adaptive-bench inspect`: shows which token of a text executes which branch, as a page or a table."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_bench import output, registry
from adaptive_bench.cli import options
from adaptive_bench.cli.terminal_text import load_libraries, numbers_table, paragraph, wrapped
from adaptive_bench.errors import EnvironmentProblem, UsageError, message_of
from adaptive_bench.spec import parse_specs

if TYPE_CHECKING:
    from adaptive_bench.headroom.named_models import Subjects
    from adaptive_bench.inspection.readings import Inspection, Text


FORMS = (".html", ".csv", ".parquet", ".json")


def inspect(
    model: options.RunOrModel,
    text: Annotated[Path | None, typer.Option(help="File with the prompt to look at, - for standard input.")] = None,
    answer: Annotated[
        Path | None, typer.Option(help="File with the answer; by default the first method's model writes one.")
    ] = None,
    tasks: Annotated[
        str | None, options.naming("tasks", "Statistics over documents of tasks, instead of a text.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Documents of each task, a seeded draw.")] = 32,
    methods: Annotated[
        str | None, options.naming("methods", "Method specs; default: all of a run that decide by token.")
    ] = None,
    savings: Annotated[
        str | None, typer.Option(help="Shares of token-branches to skip; default: 0 to 0.5, as far as calibrated.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=0, help="Most tokens to write as answer; 0: no answer.")] = 64,
    paper: Annotated[
        bool, typer.Option("--paper", help="The gate analysis of the GateSkip paper beside ours; with --tasks.")
    ] = False,
    num_fewshot: options.NumFewshot = None,
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
    out: options.Out = options.DEFAULT_OUT,
    to: Annotated[
        Path | None,
        typer.Option("--output", "-o", parser=options.writable, help="A .html page; .csv, .parquet or .json."),
    ] = None,
    as_json: options.AsJson = False,
    plugin: options.Plugins = None,
) -> None:
    """Look inside: what methods skip of a text, token by token and layer by layer, at several dial values.

    The page is one file that opens from disk; .csv and .parquet have a row for each token and branch. Without -o skip
    rates are printed.
    """
    _check(text, answer, tasks, to)
    if paper and (tasks is None or savings is not None):
        raise UsageError(
            "--paper repeats the paper's analysis: give --tasks such as gsm8k,csqa,piqa, and no --savings."
        )
    if paper and to is not None and to != output.STDOUT and to.suffix != ".json":
        raise UsageError(f"--paper is printed, and written as .json, got -o {str(to)!r}. Name such a file.")
    prompt, given = _read(text), _read(answer)  # before the libraries load, which takes seconds
    asked = None if savings is None else options.shares(savings, "--savings")
    load_libraries(plugin)
    from adaptive_bench.headroom.named_models import find_subjects
    from adaptive_bench.inspection.gate_analysis import gate_analysis
    from adaptive_bench.inspection.readings import inspect_texts, one_text, record_of

    names, root = ([], data_dir) if tasks is None else options.tasks_and_data(tasks, data_dir)
    specs = [] if methods is None else parse_specs(methods)
    # Dial values are those calibrated for the first of the tasks, whichever tasks are read.
    subjects = find_subjects(model, specs, out=out, task=names[0] if names else None, device=device)
    if paper:
        texts = _texts_of(subjects, names, limit, num_fewshot, root)
        options.give_record(gate_analysis(subjects, texts, names), to, as_json, paper_shown)
        return
    if prompt is None:
        texts, about = _texts_of(subjects, names, limit, num_fewshot, root), ", ".join(names)
    else:
        texts, about = [one_text(subjects, prompt, given, max_new_tokens)], text.name if text else ""
    found = inspect_texts(subjects, texts, asked, about=about)
    for note in found.notes:
        typer.echo(paragraph(f"Note: {note}"), err=True)
    if to is not None and to.suffix in (".csv", ".parquet"):
        _write_table(found, to)
    elif to is not None and to.suffix == ".html":
        record = record_of(found)
        # Pages are plugins: the core knows none of them by name.
        output.write_text(to, registry.get("board_commands", "inspect")(record))
        _say(f"{len(record['methods'])} method(s), {record['tokens']} tokens", to)
    else:
        options.give_record(record_of(found), to, as_json, shown)


def _check(text: Path | None, answer: Path | None, tasks: str | None, to: Path | None) -> None:
    """Refuse options that do not go together, before anything is loaded."""
    if (text is None) == (tasks is None):
        got = "neither" if text is None else "both"
        raise UsageError(
            f"inspect looks at a text (--text FILE) or documents of tasks (--tasks), got {got}. Give one of them."
        )
    options.check_goes_with("--answer", answer is not None, "--text", text is not None)
    if to is not None and to != output.STDOUT and to.suffix not in FORMS:
        raise UsageError(f"-o is a file that ends in one of {', '.join(FORMS)}, got {str(to)!r}. Name such a file.")


def _read(file: Path | None) -> str | None:
    """The text of a file, without a final line break."""
    if file is None:
        return None
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(
            f"A text is a file in UTF-8, but {str(file)!r} cannot be read: {message_of(error)}. Name another one."
        ) from error
    if not text.strip():
        raise UsageError(f"A text has one token or more, got an empty one in {str(file)!r}. Name another one.")
    return text.removesuffix("\n")  # with which editors end a file, and which is no part of a prompt


def _texts_of(
    subjects: Subjects, names: list[str], limit: int, num_fewshot: int | None, data_dir: Path | None
) -> list[Text]:
    """Documents of tasks with the answers that the first model writes with nothing skipped, or that are given."""
    from adaptive_bench.headroom.task_texts import collect_texts
    from adaptive_bench.live_display import Display

    model, texts = subjects.models[0], []
    model.dial = model.method.dial.skip_nothing
    with Display() as reporter:
        for name in names:
            found = collect_texts(
                model,
                subjects.tokenizer,
                name,
                split="test",
                limit=limit,
                data_dir=data_dir,
                num_fewshot=num_fewshot,
                batch_size=8,
                reporter=reporter,
            )
            texts += [(list(one.prompt), list(one.answer)) for one in found]
    return texts


def _write_table(found: Inspection, to: Path) -> None:
    from adaptive_bench.inspection.readings import tidy

    table = tidy(found)
    content = table.to_csv(index=False, lineterminator="\n").encode() if to.suffix == ".csv" else table.to_parquet()
    output.write_bytes(to, content)
    _say(f"{len(table)} rows of {len(found.readings)} method(s)", to)


def _say(what: str, to: Path) -> None:
    typer.echo(f"{what}, written to {output.named(to)}", err=output.is_stdout(to))


_AGREES = {True: "yes", False: "no", None: "in part, or not known"}


def shown(record: Mapping[str, Any]) -> str:
    """For each method, its skip rates by kind of token at every saving."""
    texts = f" of {record['texts']} texts" if record["texts"] > 1 else ""
    parts = [paragraph(f"{record['name']}, {record['about']}: {record['tokens']} tokens{texts}. Skipped, in %:")]
    parts += [_rates(one) for one in record["methods"]]
    parts.append(paragraph("-o page.html shows the text with every decision."))
    return "\n\n".join(parts)


def _rates(method: Mapping[str, Any]) -> str:
    points = method["points"]
    first = next(iter(points.values()))
    whole = int(sum(count for count, *_ in first["by_part"].values()))
    # Group sizes are the same at every saving, so the first point tells them.
    lines = [["all", str(whole), *(f"{100 * one['saved']:.1f}" for one in points.values())]]
    for group in ("by_part", "by_kind"):
        for name, (count, *_) in first[group].items():
            # The mean of attention and MLP, in %.
            rates = (f"{50 * sum(one[group][name][1:]):.1f}" for one in points.values())
            lines.append([name, str(int(count)), *rates])
    return numbers_table([method["spec"], "tokens", *(f"{100 * float(saving):g}" for saving in points)], lines)


def paper_shown(record: Mapping[str, Any]) -> str:
    """The paper's statements, each beside our result and whether they agree; then the tokens with the highest gates."""
    about = f"{record['name']}, {', '.join(record['tasks'])}: {record['texts']} texts, {record['tokens']} tokens."
    parts = [paragraph(f"{record['source']} beside {about}")]
    for method in record["methods"]:
        parts.append(method["spec"])
        for one in method["statements"]:
            lines = (
                f"  {one['place']}: {one['paper']}",
                f"    ours: {one['ours']}",
                f"    agrees: {_AGREES[one['agrees']]}",
            )
            parts.append("\n".join(wrapped(line, indent="      ") for line in lines))
        for saving, items in method["top"].items():
            body = [
                [str(place), name, str(count), f"{value:.4f}"] for place, (name, count, value) in enumerate(items, 1)
            ]
            title = f"Highest mean gates at {100 * float(saving):g} % asked"
            parts.append(f"{title}\n{numbers_table(['', 'token', 'times', 'gate'], body)}")
    return "\n\n".join(parts)
