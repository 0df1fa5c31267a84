"""Defines the configuration of a run: typed, complete, and strict about unknown keys.

A key that is not given keeps the default written here; `config_file` reads presets and YAML files.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator
from pydantic.fields import FieldInfo

from adaptive_bench.errors import UsageError
from adaptive_bench.recipe import LISTED, EvalRecipe, ForModels, Shares, Strict, TrainRecipe, option
from adaptive_bench.spec import MethodSpec, parse_specs
from adaptive_bench.validation import LARGEST_SEED, MOST_MINUTES, MOST_SEEDS

DATA_VARIABLE = "ADAPTIVE_BENCH_DATA"
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

    @field_validator("levels")
    @classmethod
    def _sorted_levels(cls, levels: tuple[float, ...] | None) -> tuple[float, ...] | None:
        return tuple(sorted(levels)) if levels else levels


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
