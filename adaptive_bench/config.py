"""The configuration of a run: typed, complete, and strict about unknown keys.

A preset (`configs/*.yaml`) or a YAML file gives the values, command-line flags override them. A file may name a preset
as its `base` and say only what differs. What is not given keeps the default written here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.spec import MethodSpec, parse_specs

DEFAULT_PRESET = "nano"
DATA_VARIABLE = "ADAPTIVE_BENCH_DATA"

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[int, Field(ge=1)]
FlopAxis = Literal["net", "tokens", "core"]
Names = Annotated[tuple[str, ...], Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TrainRecipe(_Strict):
    """How every method of a run is trained: the same for all of them.

    Attributes:
        steps: Optimizer steps; with 0 every model is evaluated as it is.
        batch_size: Sequences per optimizer step.
        accumulation: Micro-batches one optimizer step is split into; divides `batch_size`.
        target: Saving every method is trained towards, a share on the axis that is matched on (saved time: on `net`);
            `None` for the largest level but one. Of several targets each is trained; which one serves a level is chosen
            on validation documents.
        learning_rate: Peak of the schedule.
        method_learning_rates: By method spec, or by name for all specs of a method, the peak for the parameters it
            adds, where not `learning_rate`.
        warmup_steps: Steps of linear warm-up; see `training.schedule`.
        decay: How the rate comes to zero: linearly over the last 40 % of the steps, or along a cosine.
        max_length: Longest sequence in tokens; longer ones are cut, and the user is told.
        checkpoint_every: Steps between two checkpoints a run can resume from.
    """

    steps: int = Field(default=150, ge=0)
    batch_size: Positive = 32
    accumulation: Positive = 1
    target: Annotated[tuple[Share, ...], Field(min_length=1)] | None = None
    learning_rate: float = Field(default=1e-3, gt=0)
    method_learning_rates: dict[str, Annotated[float, Field(gt=0)]] = {}
    warmup_steps: int = Field(default=20, ge=0)
    decay: Literal["linear_end", "cosine"] = "linear_end"
    weight_decay: float = Field(default=0.001, ge=0)
    betas: tuple[Share, Share] = (0.9, 0.999)
    clip_norm: float = Field(default=1.0, gt=0)
    precision: Literal["fp32", "bf16"] = "fp32"
    max_length: Positive = 256
    checkpoint_every: Positive = 50

    @field_validator("target", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, int | float) else value

    @model_validator(mode="after")
    def _whole_micro_batches(self) -> TrainRecipe:
        if self.batch_size % self.accumulation:
            raise UsageError(
                f"train.accumulation must divide train.batch_size, got {self.accumulation} and {self.batch_size}. "
                f"Change one of the two."
            )
        return self


class EvalRecipe(_Strict):
    """How every method of a run is evaluated.

    Attributes:
        batch_size: Sequences evaluated together; halved when memory runs out.
        limit: Documents per task, `None` for all of them.
        num_fewshot: Worked examples before each question, `None` for the task's own number.
        calibration_examples: Training examples (never test items) that thresholds are calibrated on, of each task.
        calibration: `task` calibrates for each task on text of its own (on that of all others if it has none);
            `pooled` once for all of them.
        calibration_text: `gold` takes the training answers, `written` what the trained model itself writes to the same
            prompts with nothing skipped.
        grid: Shares of saved tokens evaluated first; the sweep adds values until every level is bracketed.
    """

    batch_size: Positive = 64
    limit: Positive | None = None
    num_fewshot: int | None = Field(default=None, ge=0)
    calibration_examples: Positive = 256
    calibration: Literal["task", "pooled"] = "task"
    calibration_text: Literal["gold", "written"] = "gold"
    grid: Annotated[tuple[Share, ...], Field(min_length=1)] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)

    @field_validator("grid")
    @classmethod
    def _sorted_grid(cls, grid: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sorted(set(grid)))


class RunConfig(_Strict):
    """Everything `adaptive-bench run` needs to know.

    Attributes:
        methods: Method specs in canonical form; a YAML list or one comma-separated text.
        tasks: Names of tasks of this package, of a plugin, or of lm-eval.
        model: A registered model, a folder in Hugging Face layout, or a hub id.
        data_dir: Folder with local data files; default: the environment variable `ADAPTIVE_BENCH_DATA`.
        seeds: A list of seeds, or a number n for the seeds 1 to n.
        levels: Saved shares at which methods are compared; `None` for each task's own.
        match_on: The axis the levels are on: saved net FLOPs, saved core FLOPs, saved tokens, or saved time as measured
            by `adaptive-bench time`; or what the dial claims, as papers plot it.
        match_phase: The phase those savings are of: `all` pools both; `prefill` and `decode` count what is read in one
            pass and what is written token by token.
        project_onto: Model shape whose costs the tables' projected net saving is worked out with.
        timing: Only timings of settings whose name contains this text; `None` for all.
        train_on: Tasks whose training text is used; `None` for every selected task that has some.
        out: Folder the records and tables are written to.
        device: `auto`, or a torch device such as `cpu` or `cuda:0`.
    """

    methods: Names
    tasks: Names
    model: str = "nano"
    data_dir: Path | None = None
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (1,)
    levels: Annotated[tuple[Share, ...], Field(min_length=1)] | None = None
    match_on: Literal["net", "tokens", "core", "claimed", "time"] = "net"
    match_phase: Literal["all", "prefill", "decode"] = "all"
    project_onto: str = "llama-3.2-1b"
    timing: str | None = None
    train_on: Names | None = None
    train: TrainRecipe = TrainRecipe()
    evaluation: EvalRecipe = EvalRecipe()
    out: Path = Path("runs")
    device: str = "auto"

    @model_validator(mode="after")
    def _phases_are_counted(self) -> RunConfig:
        if self.match_phase != "all" and self.match_on in ("claimed", "time"):
            raise UsageError(
                f"match_phase is for savings that are counted by phase (net, core, tokens), got {self.match_phase!r} "
                f"with match_on {self.match_on!r}. Leave one of the two out."
            )
        return self

    @field_validator("methods", mode="before")
    @classmethod
    def _canonical_specs(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(str(spec) for spec in parse_specs(value))
        if isinstance(value, list | tuple):
            return tuple(dict.fromkeys(str(MethodSpec.parse(str(text))) for text in value))
        return value

    @field_validator("tasks", "train_on", mode="before")
    @classmethod
    def _name_list(cls, value: Any) -> Any:
        parts = value.split(",") if isinstance(value, str) else value
        if isinstance(parts, list | tuple):
            return tuple(dict.fromkeys(name for name in (str(part).strip() for part in parts) if name))
        return parts

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_or_list(cls, value: Any) -> Any:
        return tuple(range(1, value + 1)) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("seeds")
    @classmethod
    def _each_seed_once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(seeds))

    @field_validator("levels")
    @classmethod
    def _sorted_levels(cls, levels: tuple[float, ...] | None) -> tuple[float, ...] | None:
        return tuple(sorted(set(levels))) if levels else levels


def load_config(preset_or_path: str | Path = DEFAULT_PRESET, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a preset or a YAML file and apply overrides.

    Args:
        preset_or_path: Name of a preset, or path of a YAML file (recognised by its suffix `.yaml` or `.yml`).
        overrides: Values that win over the file, nested like the file: `{"train": {"steps": 10}}`.

    Raises:
        UsageError: Unknown preset or key (with a suggestion), or a value out of range.
        EnvironmentProblem: The file or the data folder does not exist or cannot be read.
    """
    path = Path(preset_or_path)
    if path.suffix not in {".yaml", ".yml"}:
        path = Path(registry.get("configs", str(preset_or_path)))
    values = _merged(_with_base(_read_yaml(path)), overrides or {})
    if values.get("data_dir") is None and os.environ.get(DATA_VARIABLE):
        values["data_dir"] = os.environ[DATA_VARIABLE]
    try:
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        raise UsageError(_explain(error, path)) from error
    if config.data_dir is not None and not config.data_dir.is_dir():
        raise EnvironmentProblem(
            f"The data folder must exist, got {str(config.data_dir)!r}. Set --data-dir or {DATA_VARIABLE} to a folder, "
            f"or leave both out to read from the Hugging Face hub."
        )
    return config


def _with_base(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a file over those of the preset it names as its base."""
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str) or Path(base).suffix:
        raise UsageError(f"The config key 'base' names a preset of `list configs`, got {base!r}.")
    return _merged(_with_base(_read_yaml(Path(registry.get("configs", base)))), values)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(f"The config file {str(path)!r} cannot be read: {error}. Check the path.") from error
    except yaml.YAMLError as error:
        raise UsageError(f"The config file {str(path)!r} is not valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(values, dict):
        raise UsageError(f"The config file {str(path)!r} must hold keys and values, got {type(values).__name__}.")
    return values


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        merged[key] = _merged(known, value) if isinstance(value, Mapping) and isinstance(known, Mapping) else value
    return merged


def _explain(error: ValidationError, path: Path) -> str:
    problems = [dict[str, Any](problem) for problem in error.errors()]
    # A list whose items are wrong is also reported as too short: say only what is wrong with the items.
    items = {problem["loc"][:-1] for problem in problems}
    told = [problem for problem in problems if problem["type"] != "too_short" or problem["loc"] not in items]
    return " ".join(_explain_one(problem) for problem in told) + f" (Config: {path.name}.)"


def _explain_one(problem: dict[str, Any]) -> str:
    location = [str(part) for part in problem["loc"]]
    key, received = ".".join(location), problem["input"]
    if problem["type"] == "extra_forbidden":
        parts: dict[str, type[BaseModel]] = {"train": TrainRecipe, "evaluation": EvalRecipe}
        model = parts.get(location[0], RunConfig) if len(location) > 1 else RunConfig
        return f"No config key is called {key!r}. {registry.did_you_mean(location[-1], model.model_fields)}"
    if problem["type"] == "missing":
        return f"The config key {key!r} is needed. Add it to the file."
    hint = " Write 0.05 for 5 %." if location[0] in {"levels", "evaluation"} and problem["type"] == "less_than" else ""
    return f"The config key {key!r} is wrong: {problem['msg']}, got {received!r}.{hint}"
