"""Defines the configuration of a run: typed, complete, and strict about unknown keys; and reads it from files.

A preset (`configs/*.yaml`) or a YAML file gives the values; command-line flags override them. A file may say
`extends: nano` and hold only what differs. A key that is not given keeps the default written here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, PluginFault, UsageError, one_line
from adaptive_bench.recipe import LISTED, EvalRecipe, ForModels, Shares, Strict, TrainRecipe, option
from adaptive_bench.spec import MethodSpec, parse_specs
from adaptive_bench.validation import LARGEST_SEED, MOST_MINUTES, MOST_SEEDS, read_mapping, rule_of

DATA_VARIABLE = "ADAPTIVE_BENCH_DATA"
DEFAULT_PRESET = "nano"
QUICK = " --quick"  # appended to the name of a preset that `run --quick` made smaller

Names = Annotated[tuple[str, ...], Field(min_length=1), *LISTED]
_Folder = Annotated[Path, AfterValidator(Path.expanduser)]
_Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
Seeds = Annotated[tuple[_Seed, ...], Field(min_length=1, max_length=MOST_SEEDS), *LISTED]
Trackers = Annotated[tuple[Literal["tensorboard", "trackio", "wandb"], ...], *LISTED]

_what, _how, _where = (partial(option, panel) for panel in ("What is compared", "How", "Where"))


class RunConfig(Strict):
    """Everything `adaptive-bench run` needs to know.

    The first line of a description is the help text of the option. Every key, also of the nested parts, can be given
    with `--set`.
    """

    methods: Names = _what("Method specs, for example `gateskip,mod` or `gateskip[shape=scalar]@paper`.")
    tasks: Names = _what("Tasks of `list tasks`, or any lm-eval task.")
    model: str = _what("A model of `list models`, a folder in Hugging Face layout, a GGUF file, or a hub id.", "nano")
    data_dir: _Folder | None = _where(f"Folder with local data files (or set {DATA_VARIABLE}).", None)
    seeds: Seeds = _how("`3` for seeds 1 to 3, or a list: `1,2,5`.", (1,))
    levels: Shares | None = _how(
        "Saved shares to compare at, for example `0,0.15,0.25`, or `auto`.\n`auto`, the default, is one level: the "
        "whole number of layers nearest to 15 %. Every method that trains towards a saving is trained for each level.",
        None,
    )
    match_on: Literal["layers", "net", "core", "tokens", "claimed", "bytes"] = _how(
        "What the levels are shares of.\nSaved net FLOPs as a share of those of the layers (leaving out 1 of 6 layers "
        "saves 1/6), or of the whole model with its head (`net`), saved core FLOPs, saved tokens, what the dial claims "
        "(as papers plot it), or bytes a written token reads less than in the dense model in fp32.",
        "layers",
        flag="--axis",
    )
    match_phase: Literal["all", "prefill", "decode"] = _how(
        "The tokens whose saving the levels refer to.\nTokens read in one pass, written one by one, or both pooled.",
        "all",
        flag="--phase",
    )
    project_onto: str = Field(
        default="llama-3.2-1b",
        description="Model shape onto which the tables project the net saving.",
    )
    timing: str | None = _how("Use only timed settings whose name contains this.", None, min_length=1)
    train_on: Names | None = _how("Tasks to train on; otherwise every selected task with training text.", None)
    chat_template: bool = _how(
        "Put training text and prompts into the model's own chat template.\nAs lm-eval does with "
        "`--apply_chat_template`: a question is a user's turn, its answer the assistant's.",
        False,
    )
    shuffled: bool = _how(
        "Also measure each method with the decisions of other tokens.\nThe control that tells what is lost with them "
        "(docs/protocol.md). It trains nothing and doubles the evaluations.",
        False,
    )
    eligible: Literal["auto", "measured", "all"] = _how(
        "Where tokens may skip: at all sites, or only where a measurement allows it.\nMeasured on held-out training "
        "text before anything is trained: sites that cost over ten times the median run every token, for every method "
        "that decides for single tokens (docs/protocol.md). `auto` measures pretrained models given by folder or hub "
        "id, but spares nothing in the presets of papers or in `@paper` semantics.",
        "auto",
    )
    train: TrainRecipe = TrainRecipe()
    evaluation: EvalRecipe = EvalRecipe()
    out: _Folder = _where("Folder for records and tables.", Path("runs"))
    device: str = _where("auto, cpu, cuda:0, ...", "auto")
    track: Trackers = _where("Also send training curves to these trackers.", ())
    cell_timeout: Annotated[float, Field(gt=0, le=MOST_MINUTES)] | None = _where(
        "End a training, or one method's evaluations on it, that takes longer; the rest goes on.",
        None,
        metavar="MINUTES",
    )
    stall_warning: float = _where(
        "Warn when work makes no progress for this long; 0: never.", 10.0, metavar="MINUTES", ge=0, le=MOST_MINUTES
    )
    preset: str | None = Field(default=None, description="Name of the preset that it was made from.")
    for_models: ForModels | None = Field(default=None, description="Models that it is for; others are refused.")

    @property
    def is_quick(self) -> bool:
        """Whether the run is only a first look (`--quick`), whose numbers are not to be quoted."""
        return (self.preset or "").endswith(QUICK)

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        if self.match_phase != "all" and self.match_on in ("claimed", "bytes"):
            raise UsageError(
                f"match_phase is for savings that are counted by phase (layers, net, core, tokens), got "
                f"{self.match_phase!r} with match_on {self.match_on!r}. Leave out one of the two."
            )
        if self.evaluation.enable_thinking is not None and not self.chat_template:
            raise UsageError(
                f"evaluation.enable_thinking is given to the chat template, got {self.evaluation.enable_thinking} "
                f"without one. Add --chat-template, or leave it out."
            )
        return self

    @field_validator("methods", mode="before")
    @classmethod
    def _canonical_specs(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(str(spec) for spec in parse_specs(value))
        if isinstance(value, list | tuple):
            return tuple(str(MethodSpec.parse(part)) for part in value)
        return value

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_or_list(cls, value: Any) -> Any:
        if isinstance(value, str) and value.strip().isdecimal():
            value = int(value)
        if not isinstance(value, int):
            return value
        if not 1 <= value <= MOST_SEEDS:
            raise ValueError(f"a run has from 1 to {MOST_SEEDS} seeds")
        return tuple(range(1, value + 1))

    @field_validator("levels", mode="before")
    @classmethod
    def _found_by_the_plan(cls, value: Any) -> Any:
        return None if isinstance(value, str) and value.strip() == "auto" else value


def keys(part: type[BaseModel] = RunConfig, above: str = "") -> dict[str, FieldInfo]:
    """Return every key of a config by its dotted path, such as `train.lora.rank`; a part comes before its own keys."""
    every: dict[str, FieldInfo] = {}
    for name, field in part.model_fields.items():
        every[above + name] = field
        if (inner := part_of(field)) is not None:
            every |= keys(inner, f"{above}{name}.")
    return every


def part_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the part of a config that a key stands for: `TrainRecipe` for `train`; `None` for a key with a value."""
    kinds = get_args(field.annotation) or (field.annotation,)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def load_config(
    preset_or_path: str | Path = DEFAULT_PRESET,
    overrides: Mapping[str, Any] | None = None,
    *,
    flags: Mapping[str, str] | None = None,
    reads_data: bool = True,
) -> RunConfig:
    """Read a preset or a YAML file and apply overrides.

    Args:
        preset_or_path: Name of a preset, or path of a YAML file (recognised by its suffix `.yaml` or `.yml`). A file
            that says `extends: nano` changes that preset. It is for any model, unless it names models itself.
        overrides: Values that take precedence over the file, nested like the file: `{"train": {"steps": 10}}`.
        flags: The user's name of an override, by its dotted path: `{"train.steps": "--train-steps"}`.
        reads_data: Whether the data folder must exist; commands that only read results need no data.

    Raises:
        UsageError: A preset or key is unknown (the message suggests one), or a value is out of range.
        EnvironmentProblem: The file or the data folder does not exist or cannot be read.
    """
    path = Path(preset_or_path).expanduser()
    preset = None
    if path.suffix not in {".yaml", ".yml"}:
        preset = str(preset_or_path)
        if path.is_dir() and preset not in registry.names("configs"):
            raise UsageError(f"A config is a preset or a YAML file, got a folder. Name {str(path / 'config.yaml')!r}.")
        path = preset_file(preset)
    read = _read(path)
    # A file that changes a preset is not limited to the preset's models; its author says which models it is for.
    if preset is None and "extends" in (own := read_mapping(path)):
        read["for_models"] = own.get("for_models")
    values = merged({"preset": preset} | read, overrides or {})
    if values.get("data_dir") is None and os.environ.get(DATA_VARIABLE):
        values["data_dir"] = os.environ[DATA_VARIABLE]
    try:
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        raise UsageError(_explained(error, flags or {}, path)) from error
    if reads_data:
        check_data_folder(config.data_dir)
    return config


def check_data_folder(folder: Path | None) -> None:
    """Refuse a folder of local data that does not exist, even if nothing would be read from it.

    Raises:
        EnvironmentProblem: A folder is given but does not exist.
    """
    if folder is not None and not folder.is_dir():
        raise EnvironmentProblem(
            f"The data folder must exist, got {str(folder)!r}. Set --data-dir or {DATA_VARIABLE} to a folder, or leave "
            f"both out to read from the Hugging Face hub."
        )


def _read(path: Path, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read the keys and values of a file; those of the preset that it `extends` are filled in, and so on."""
    values = read_mapping(path)
    base = values.pop("extends", None)
    if base is None:
        return values
    if not isinstance(base, str) or base.endswith((".yaml", ".yml")):
        raise UsageError(
            f"The config {str(path)!r} extends one preset, by its name, got {one_line(str(base), 60)}. Write for "
            f"example extends: nano, and the keys that differ below it."
        )
    if base in above:
        raise UsageError(f"Configs extend presets without going in a circle, got {' -> '.join((*above, base))}.")
    return merged(_read(preset_file(base), (*above, base)), values)


def default_presets() -> dict[str, ForModels]:
    """Return by preset the models that use it if the user names no preset."""
    presets = {}
    for name in registry.names("configs"):
        about = read_mapping(preset_file(name)).get("for_models")
        if about is not None and (models := ForModels.model_validate(about)).by_default:
            presets[name] = models
    return presets


def preset_naming(model: str | None) -> str | None:
    """Return the preset that lists a model by name; without a model, the default preset."""
    if model is None:
        return DEFAULT_PRESET
    return next((name for name, models in default_presets().items() if model in models.names), None)


def preset_file(name: str) -> Path:
    """Return the file of a registered config; anything but a path is a `PluginFault`."""
    registered = registry.get("configs", name)
    if not isinstance(registered, str | Path):
        got = f"{type(registered).__name__} under {name!r} ({registry.origin('configs', name)})"
        raise PluginFault(f"A registered config must be the path of a YAML file, got {got}. Correct the plugin.")
    return Path(registered)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return values overridden by others; mappings are merged, so only the keys in `over` change."""
    values = dict(base)
    for key, value in over.items():
        below = values.get(key)
        values[key] = merged(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return values


def _explained(error: ValidationError, flags: Mapping[str, str], file: Path) -> str:
    """Return what is wrong with a config, each problem by its flag if one was given, otherwise by its key."""
    said: list[str] = []
    for problem in error.errors():
        if problem["type"] == "too_short" and said:
            continue  # pydantic counts only the items that are right
        key = ".".join(map(str, problem["loc"]))
        flag = next((flag for path, flag in flags.items() if f"{key}.".startswith(f"{path}.")), None)
        name = flag or f"The config key {one_line(key, 60)!r} in {file.name}"
        if problem["type"] == "extra_forbidden":
            above, _, last = key.rpartition(".")
            around = [path.removeprefix(f"{above}.") for path in keys() if path.rpartition(".")[0] == above]
            places = [path for path in keys() if path.rpartition(".")[2] == last]
            hint = f"Write it as {' or '.join(places)}." if places else registry.did_you_mean(last, around)
            said.append(f"{name} does not exist. {hint}")
        elif problem["type"] == "missing":
            said.append(f"{name} is needed.")
        elif problem["input"] is None:
            said.append(f"{name} has no value. Write one, or leave the key out.")
        else:
            said.append(f"{name} is wrong: {rule_of(problem)}, got {one_line(str(problem['input']), 100)}.")
    return " ".join(dict.fromkeys(said))
