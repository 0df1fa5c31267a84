"""Lets `transformers.Trainer` train an adaptive model: the method's losses are part of the model's loss, and a callback
does the rest. Importing transformers' trainer takes seconds and needs accelerate, so nothing else imports this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from adaptive_bench.errors import UsageError
from adaptive_bench.model.adaptive_model import AdaptiveModel


class AdaptiveCallback(TrainerCallback):
    """Callback for `Trainer(model=AdaptiveModel, callbacks=[AdaptiveCallback()])`, also with peft's adapters and in
    TRL's trainer. Before every optimizer step, whatever its number of micro-batches, the method's schedules get the
    progress of training. The trainer's checkpoints become folders that `AdaptiveModel.from_pretrained` can load.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Refuse settings that would train something other than they say."""
        model = _adaptive(given["model"])
        if getattr(args, "packing", False) or getattr(args, "padding_free", False):  # arguments of TRL
            raise UsageError(
                "Each text needs its own row, since tokens would see other texts packed into the same row, got packing "
                "or padding_free. Leave them out."
            )
        own = list(model.method.parameters())
        if own and not any(parameter.requires_grad for parameter in own):
            raise UsageError(
                f"The parameters of {model.spec} are trained, but all of them are frozen, as get_peft_model freezes "
                f"every given parameter. Call model.method.requires_grad_(True) after it."
            )
        # Wrapped by peft, and resumed (the step is not 0).
        if model is not given["model"] and own and state.global_step:
            raise UsageError(
                "A checkpoint of peft holds adapters alone, so training cannot go on from it with the method's own "
                "parameters. Put adapters on the backbone first: get_peft_model(backbone, config), then "
                "AdaptiveModel.build(backbone, method); its checkpoints are whole."
            )
        if args.world_size > 1 or args.n_gpu > 1:
            raise UsageError(
                f"Trainer trains an adaptive model in one process on one device, got {args.world_size} processes and "
                f"{args.n_gpu} GPUs: losses of methods average over a whole batch. Use `adaptive-bench run` under "
                f"torchrun, or set CUDA_VISIBLE_DEVICES to one GPU."
            )
        if args.label_smoothing_factor:
            raise UsageError(
                f"The loss of an adaptive model is computed by the model, with the method's own losses, got "
                f"label_smoothing_factor={args.label_smoothing_factor}. Leave it out."
            )

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Tell the method the progress of training."""
        model = _adaptive(given["model"])
        model.begin_step(state.global_step + 1, state.max_steps)
        # `on_pre_optimizer_step` looks whether a forward pass with labels has filled it again.
        model.raw_loss_terms = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Refuse a step whose loss is not the model's own."""
        if not _adaptive(given["model"]).raw_loss_terms:
            raise UsageError(
                "The loss of an adaptive model is computed by the model, with the method's own losses, but the model "
                "got no labels: Trainer takes them away for compute_loss_func. Leave it out, and have a data collator "
                "that gives labels."
            )

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Complete the checkpoint that was just written; a `UsageError` if a search over hyperparameters moved it."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if not folder.is_dir():
            raise UsageError(
                f"Checkpoints of an adaptive model are completed in output_dir/checkpoint-STEP, not found: {folder}. "
                f"Set save_strategy='no' in a search over hyperparameters."
            )
        _adaptive(given["model"]).save_pretrained(folder)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Forget the progress of training, so that a later training must set it again."""
        _adaptive(given["model"]).method.end_training()


def _adaptive(model: Any) -> AdaptiveModel:
    if hasattr(model, "get_base_model"):  # a peft model around an adaptive model
        model = model.get_base_model()
    if not isinstance(model, AdaptiveModel):
        raise UsageError(
            f"AdaptiveCallback is for a Trainer with an AdaptiveModel, got {type(model).__name__}. Build one with "
            f"AdaptiveModel.build(model, method)."
        )
    return model
