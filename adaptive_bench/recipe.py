"""Defines the recipes of a run: how every method is trained and evaluated, and which models a recipe is for."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from adaptive_bench.errors import UsageError
from adaptive_bench.store.keys import USUAL
from adaptive_bench.validation import LARGEST_COUNT, LARGEST_RATE, Quantization, each_once, parts_of

MOST_SEQUENCES = 10_000_000  # of one training, whose whole text is drawn before it starts
LEAST_TEMPERATURE = 1e-6  # logits divided by a smaller temperature may be infinite, and cannot be drawn from
_MOST = 1e6
_OF_WRITING = {"stop_strings", "max_new_tokens"}  # these have no effect on tasks in which nothing is generated


def _items(value: Any) -> Any:
    """Split a comma-separated text, and strip the texts of a list."""
    parts = parts_of(value) if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        return value
    return tuple(part.strip() if isinstance(part, str) else part for part in parts)


LISTED = BeforeValidator(_items), AfterValidator(each_once)  # of a list, which may be a comma-separated text
Share = Annotated[float, Field(ge=0, lt=1)]
_Rising = AfterValidator(lambda shares: tuple(sorted(shares)))
Shares = Annotated[tuple[Share, ...], Field(min_length=1, max_length=1000), *LISTED, _Rising]
Positive = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Counts = Annotated[tuple[Positive, ...], Field(min_length=1), *LISTED]
Parameters = Annotated[int, Field(ge=1)]  # of a model
FlopAxis = Literal["layers", "net", "tokens", "core"]
LinearMap = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def option(
    panel: str, text: str, default: Any = ..., *, flag: str | None = None, metavar: str | None = None, **rules: Any
) -> Any:
    """Return the field of a key that has a command-line option of its own.

    Args:
        panel: Heading in the help under which the option is listed.
        text: Description; its first line is shown in the help.
        flag: Name of the option; by default made from the key's name.
        metavar: Placeholder of the value in the help; by default its type.
    """
    about: dict[str, Any] = {"panel": panel, "flag": flag, "metavar": metavar}
    return Field(default, description=text, json_schema_extra=about, **rules)


class Strict(BaseModel):
    """A part of a configuration: unknown keys and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LoraRecipe(Strict):
    """Low-rank adapters (LoRA, arXiv 2106.09685) on linear maps of the backbone, trained in its place."""

    rank: Positive = Field(default=16, description="Rank of the product that is added to each map.")
    alpha: float = Field(default=32.0, gt=0, le=_MOST, description="The product is scaled by `alpha / rank`.")
    targets: Annotated[tuple[LinearMap, ...], Field(min_length=1), *LISTED] = Field(
        default=get_args(LinearMap), description="Which maps of every layer get one."
    )
    dropout: Share = Field(default=0.0, description="Share of an adapter's inputs that is dropped in training.")


class TrainRecipe(Strict):
    """How every method of a run is trained: the same for all of them."""

    steps: int = option("How", "Optimizer steps per method; 0: no training.", 150, flag="--train-steps", ge=0)
    batch_size: Positive = Field(default=32, description="Sequences per optimizer step.")
    accumulation: Positive = Field(
        default=1, description="Micro-batches one optimizer step is split into; divides `batch_size`."
    )
    target: Share | None = Field(
        default=None,
        description="Train every method once, towards this saving, and judge it at all levels, as papers do.\nA share "
        "on the axis that is matched on. Without it each level is a target of its own, and is judged where it was "
        "trained.",
    )
    learning_rate: float = Field(default=1e-3, gt=0, le=LARGEST_RATE, description="Peak of the schedule.")
    method_learning_rates: dict[str, Annotated[float, Field(gt=0, le=LARGEST_RATE)]] = Field(
        default={},
        description="Peak for the parameters that a method adds, if it is not `learning_rate`; by method spec, or by "
        "name for all specs of a method.",
    )
    warmup_steps: int = Field(default=20, ge=0, le=LARGEST_COUNT, description="Steps of linear warm-up.")
    decay: Literal["linear_end", "cosine"] = Field(
        default="linear_end",
        description="How the rate comes to zero: linearly over the last 40 % of the steps, or along a cosine.",
    )
    weight_decay: float = Field(default=0.001, ge=0, le=LARGEST_RATE, description="Weight decay of AdamW.")
    betas: tuple[Share, Share] = Field(default=(0.9, 0.999), description="Betas of AdamW.")
    clip_norm: float = Field(default=1.0, gt=0, description="Largest norm of a gradient; longer ones are scaled down.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="fp32",
        description="Precision of products in training; weights stay in fp32.\n`auto` measures once whether bf16 is "
        "faster on this machine, and if so uses it for all methods alike. Evaluation is in fp32.",
    )
    max_length: Positive = Field(
        default=256, description="Longest sequence in tokens; longer ones are cut, and the user is told."
    )
    lora: LoraRecipe | None = Field(
        default=None,
        description="Adapters that are trained in place of the backbone's weights.\nParameters that a method adds are "
        "still trained. A method that freezes the backbone gets no adapters.",
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Recompute attention and MLPs in the backward pass, to save memory."
    )
    checkpoint_every: Positive = Field(default=50, description="Steps between two checkpoints a run can resume from.")
    parallel: Literal["ddp", "fsdp"] = Field(
        default="ddp",
        description="How several processes share a training: each with the whole model, or with a shard of it.\nIt "
        "changes no result and is in no key (docs/cluster.md).",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> TrainRecipe:
        if self.steps * self.batch_size > MOST_SEQUENCES:
            raise UsageError(
                f"A training has at most {MOST_SEQUENCES:,} sequences (train.steps times train.batch_size), got "
                f"{self.steps:,} times {self.batch_size:,}. Lower --train-steps or train.batch_size."
            )
        if self.batch_size % self.accumulation:
            raise UsageError(
                f"train.accumulation must divide train.batch_size, got {self.accumulation} and {self.batch_size}. "
                f"Change one of the two."
            )
        return self


class EvalRecipe(Strict):
    """How every method of a run is evaluated."""

    batch_size: Positive = Field(default=64, description="Sequences evaluated together; halved when memory runs out.")
    limit: Positive | None = option(
        "How", "Test documents per task: a seeded draw, the same for all methods and seeds.", None, flag="--limit"
    )
    num_fewshot: Annotated[int, Field(ge=0, le=LARGEST_COUNT)] | None = option(
        "How", "Worked examples before each question.", None, flag="--num-fewshot"
    )
    calibration_examples: Positive = Field(
        default=256, description="Training examples (never test items) that thresholds are calibrated on, of each task."
    )
    calibration: Literal["task", "pooled"] = Field(
        default="task",
        description="Calibrate for each task on text of its own (on that of all others if it has none), or once for "
        "all of them.",
    )
    calibration_text: Literal["gold", "written"] = Field(
        default="gold",
        description="The training answers, or what the trained model itself writes to the same prompts with nothing "
        "skipped.",
    )
    temperature: Annotated[float, Field(ge=LEAST_TEMPERATURE, le=10)] | None = Field(
        default=None,
        description="Write answers by drawing at this temperature, with one seed for all methods; by default the "
        "likeliest token.\nTasks that are scored by log-likelihood write nothing and stay as they are.",
    )
    stop_strings: tuple[Annotated[str, Field(min_length=1)], ...] | None = option(
        "How",
        "Text that ends an answer, in place of the task's own.\nOne text or a list; the answer stands before it.",
        None,
        flag="--stop-strings",
        min_length=1,
    )
    max_new_tokens: Positive | None = option(
        "How", "Most tokens of an answer, in place of the task's own.", None, flag="--max-new-tokens"
    )
    system_prompt: Annotated[str, Field(min_length=1)] | None = option(
        "How",
        "Text before every prompt; with --chat-template the system's turn.\nAs lm-eval's `--system_instruction`. "
        "Training and calibration text have none.",
        None,
        flag="--system-prompt",
    )
    enable_thinking: bool | None = option(
        "How",
        "Passed to the chat template; by default the template decides.\nThe thinking is part of the answer.",
        None,
        flag="--enable-thinking",
    )
    skip_overlong: bool = option(
        "How",
        "Leave out documents longer than the model's context, and count them.\nFor all methods alike. Without it a "
        "prompt that leaves no room for an answer is refused, and others lose their beginning.",
        False,
        flag="--skip-overlong",
    )
    quantize: Quantization = option(
        "How",
        "Evaluate with the linear maps of all layers in fewer bits.\nint8 by torchao, nf4 by "
        "bitsandbytes, int4 by quanto (docs/quantization.md). What is trained stays as it is; head, embeddings, norms "
        "and what a method adds keep their type, and thresholds are calibrated on the quantized model.",
        "none",
        flag="--quantize",
    )
    closeness: Annotated[float, Field(ge=0.001, lt=1)] = Field(
        default=0.01,
        description="How far the measured saving may be from the level, a share of saving.\nWhile it is further, the "
        "dial is moved and the task measured again, at most three times.",
    )

    def in_key(self, *, writes: bool = True) -> dict[str, Any]:
        """Return the settings that a measured point depends on, in plain values. Settings that earlier versions did not
        have are left out if they have their usual value, so that records of these versions are found.

        Args:
            writes: Whether the task generates answers.
        """
        left_out = {"closeness"} | {name for name, usual in USUAL.items() if getattr(self, name) == usual}
        return self.model_dump(mode="json", exclude=left_out if writes else left_out | _OF_WRITING)

    @property
    def asking(self) -> dict[str, Any]:
        """Settings of how questions are asked, as arguments of `evaluate`."""
        return self.model_dump(include={"num_fewshot", "batch_size", *USUAL} - {"quantize"})

    @field_validator("stop_strings", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class ForModels(Strict):
    """The models that a recipe is for: those listed by name, and those in a range of sizes."""

    names: tuple[str, ...] = Field(default=(), description="Registered names or hub ids.")
    families: tuple[str, ...] = Field(
        default=(), description="With `parameters`: kinds of model (`model_type`); none named means any."
    )
    parameters: tuple[Parameters, Parameters] | None = Field(
        default=None, description="Smallest number of parameters, and the number they stay below."
    )
    by_default: bool = Field(default=False, description="A run of such a model uses this preset if it names none.")

    def fit(self, name: str, family: str, parameters: int) -> bool:
        """Whether the recipe is for this model."""
        if name in self.names:
            return True
        if self.parameters is None or (self.families and family not in self.families):
            return False
        return self.parameters[0] <= parameters < self.parameters[1]

    def __str__(self) -> str:
        parts = [" and ".join(self.names)] if self.names else []
        if self.parameters is not None:
            kinds = f"{' and '.join(self.families)} " if self.families else ""
            parts.append(f"{kinds}models of {self.parameters[0]:,} to {self.parameters[1]:,} parameters")
        return " and ".join(parts) or "no model at all"
