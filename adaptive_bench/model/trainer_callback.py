"""`transformers.Trainer` with an adaptive model: schedules advance, losses are whole, checkpoints are complete.

The trainer knows nothing of a method. Its losses are in the model's own loss; what is left is told by this callback.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from adaptive_bench.errors import UsageError
from adaptive_bench.model.adaptive_model import AdaptiveModel


class AdaptiveCallback(TrainerCallback):
    """For `Trainer(model=AdaptiveModel, callbacks=[AdaptiveCallback()])`.

    Before every optimizer step, however many micro-batches it takes, the method's schedules are told where training
    stands, with peft's adapters and in TRL's trainer too. A checkpoint of the trainer becomes a folder that
    `AdaptiveModel.from_pretrained` loads as well.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Refuse what would train something else than it says."""
        model = _adaptive(given["model"])
        if getattr(args, "packing", False) or getattr(args, "padding_free", False):  # of TRL
            raise UsageError(
                "Each text has a row of its own, since tokens would see other texts packed into theirs, got packing or "
                "padding_free. Leave them out."
            )
        own = list(model.method.parameters())
        if own and not any(parameter.requires_grad for parameter in own):
            raise UsageError(
                f"The parameters of {model.spec} are trained, but all of them are frozen, as get_peft_model does with "
                f"whatever it is given. Call model.method.requires_grad_(True) after it."
            )
        if model is not given["model"] and own and state.global_step:
            raise UsageError(
                "A checkpoint of peft holds adapters alone, so training cannot go on from it with the method's own "
                "parameters. Put adapters on the backbone first: get_peft_model(backbone, config), then "
                "AdaptiveModel.build(backbone, method); its checkpoints are whole."
            )
        if args.world_size > 1 or args.n_gpu > 1:
            raise UsageError(
                f"Trainer trains an adaptive model in one process on one device, got {args.world_size} processes and "
                f"{args.n_gpu} GPUs: methods rank the tokens of a whole batch. Use `adaptive-bench run` under "
                f"torchrun, or set CUDA_VISIBLE_DEVICES to one GPU."
            )
        if args.label_smoothing_factor:
            raise UsageError(
                f"The loss of an adaptive model is computed by the model, with the method's own losses, got "
                f"label_smoothing_factor={args.label_smoothing_factor}. Leave it out."
            )

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Tell the method where training stands."""
        model = _adaptive(given["model"])
        model.begin_step(state.global_step + 1, state.max_steps)
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
        """Complete the checkpoint that was just written.

        Raises:
            UsageError: It is not where the trainer's checkpoints are (a search over hyperparameters moves them).
        """
        if not state.is_world_process_zero:
            return
        folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        if not folder.is_dir():
            raise UsageError(
                f"Checkpoints of an adaptive model are completed in output_dir/checkpoint-STEP, not found: {folder}. "
                f"Set save_strategy='no' in a search over hyperparameters."
            )
        _adaptive(given["model"]).save_pretrained(folder)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """A later training has to tell where it stands again."""
        _adaptive(given["model"]).method.end_training()


def _adaptive(model: Any) -> AdaptiveModel:
    if hasattr(model, "get_base_model"):  # of peft, around an adaptive model
        model = model.get_base_model()
    if not isinstance(model, AdaptiveModel):
        raise UsageError(
            f"AdaptiveCallback is for a Trainer with an AdaptiveModel, got {type(model).__name__}. Build one with "
            f"AdaptiveModel.build(model, method)."
        )
    return model
