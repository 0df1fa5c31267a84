"""Wraps a Hugging Face causal language model with a method that decides which tokens skip what: `AdaptiveModel`."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from adaptive_bench.backbone import Backbone
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.hub import download, is_hub_id
from adaptive_bench.method import Site, method_of, trained_alike
from adaptive_bench.method.dial import check_step
from adaptive_bench.model import calibration, stored_calibration
from adaptive_bench.model import saving as files
from adaptive_bench.model.adapters import Adapters
from adaptive_bench.model.calibration import checked_savings, checked_text
from adaptive_bench.model.hugging_face import HuggingFaceModel
from adaptive_bench.model.stored_calibration import Snapshot
from adaptive_bench.model.text_decisions import TextDecisions, encoded, text_decisions
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.manifest import find_trained
from adaptive_bench.store.runs import DEFAULT_OUT


class AdaptiveModel(HuggingFaceModel):
    """Wraps a causal language model and behaves like one. Make one with `build` or `from_pretrained`."""

    @classmethod
    def build(
        cls,
        backbone_model: PreTrainedModel,
        spec: MethodSpec | str,
        *,
        seed: int = 0,
        spared: Collection[Site] = frozenset(),
        keep_first: bool = False,
    ) -> AdaptiveModel:
        """Put a method on a model, in `train()` mode. The method's new parameters depend only on the seed.

        The backbone is not copied: a method that trains only its own parameters freezes the given model.

        Args:
            spared: Branches that every token executes, for example `{Site(0, "mlp")}`; `model.site_costs` measures
                which branches need it. Only for methods with `spares`.
            keep_first: The first token of a text executes everything. Only for methods with `spares`.

        Raises:
            UsageError: Unknown method or parameter, unsupported backbone, or an argument is no model, spec or site.
        """
        if not isinstance(backbone_model, PreTrainedModel):
            is_name = isinstance(backbone_model, str | Path)
            got = repr(str(backbone_model)) if is_name else type(backbone_model).__name__
            raise UsageError(
                f"A method is put on a model of transformers, got {got}. Load one with "
                f"find_backbone({got if is_name else 'name'}).load_model() or AutoModelForCausalLM; of peft give "
                f"model.get_base_model(), of an AdaptiveModel model.backbone_model."
            )
        spec = MethodSpec.of(spec)
        # The caller's random numbers go on as if nothing had been drawn. Parameters are made on the CPU.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            method = method_of(spec, Backbone(backbone_model), seed)
        method.set_spared(spared, keep_first)
        return cls(backbone_model, method.to(backbone_model.device), spec)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._dials: dict[float, float] = {}  # dial values of a stored calibration, by saving
        self._uncalibrated: UsageError | EnvironmentProblem | None = None  # why no stored calibration was loaded
        self._measured_on: Snapshot | None = None  # the weights for which thresholds and dial table were measured
        self._fitted_on = ""  # digest of the text that `Method.fit` read

    @property
    def saving(self) -> float:
        """The share of token-branches that the dial claims to skip; `compute_report` has the measured savings.

        Setting it sets the dial.

        Raises:
            UsageError: On setting, the method cannot save so much, or needs `calibrate` first. On reading, the saving
                of the current dial was not measured.
        """
        self._forget_what_is_stale()
        if (claimed := self.method.claimed_saving) is None:
            raise UsageError(
                f"The saving of a solved dial is known only between measured values, got {self.method.dial.name} "
                f"{self.dial:g}, which lies beyond. Call model.calibrate(batches, savings) with larger savings."
            )
        return claimed

    @saving.setter
    def saving(self, share: float) -> None:
        maximum, share = self.method.max_saving, float(share)
        if not 0.0 <= share <= maximum + 1e-9:
            raise UsageError(
                f"{self.spec} can save from 0 to {maximum:.3g} of all token-branches, got saving {share!r}. "
                "A saving is a share: 0.15 is 15 %."
            )
        self._forget_what_is_stale()
        before, share = self.dial, min(share, maximum)
        # A stored calibration knows the dial that was chosen for this saving; otherwise the method estimates it.
        known = self._dials.get(round(share, 6))
        try:
            self.dial = self.method.checked_dial(share) if known is None else known
            if not self.training:
                calibration.check_ready(self.method, share)
        except UsageError as error:
            self.method.value = before  # not `dial`, whose setter empties the ledger
            # The reason why loading found no calibration says more than that there is none.
            if self._uncalibrated is None or self._is_calibrated:
                raise
            raise self._uncalibrated from error

    def begin_step(self, step: int, total_steps: int) -> None:
        """Give the method's schedules the progress of training, before optimizer step `step` of 1 .. total_steps."""
        check_step(step, total_steps)
        self.method.begin_step(step, total_steps)
        self.forget_calibration()  # the step will change the weights

    def forget_calibration(self) -> None:
        """Drop thresholds, the dial table and fitted values, because the weights they were measured with changed."""
        self._measured_on = None
        self._dials.clear()
        for measured in (self.method.dial_table, self.method.thresholds, self.method.fitted):
            if measured is not None:
                measured.clear()

    def _forget_what_is_stale(self) -> bool:
        """Drop a calibration whose weights have changed since; returns whether there was one."""
        if not self._is_calibrated:
            self._measured_on = None
        elif self._measured_on is None:  # thresholds were set by hand: assume they are for the current weights
            self._measured_on = Snapshot(self.parameters())
        elif not self._measured_on.holds(self.parameters()):
            self.forget_calibration()
            return True
        return False

    def _drop_stale(self) -> None:
        super()._drop_stale()
        method, was_stale = self.method, self._forget_what_is_stale()
        # At a dial that skips nothing, the measured values are not read, so dropping them silently does no harm.
        reads = self.dial != method.dial.skip_nothing and (method.thresholds is not None or method.fitted is not None)
        if was_stale and reads:
            raise self._stale()

    def _stale(self) -> UsageError:
        return UsageError(
            f"A calibration is valid only for the weights it was measured with, but the weights of this {self.spec} "
            f"have changed. Call model.calibrate(batches, savings) again, or set the dial to "
            f"{self.method.dial.skip_nothing:g}, which skips nothing."
        )

    def parameter_groups(self, learning_rate: float, method_learning_rate: float | None = None) -> list[dict[str, Any]]:
        """Trainable parameters for an optimizer, each once: the backbone's, then the method's own."""
        rates = learning_rate, method_learning_rate or learning_rate
        groups = [self.backbone_model.parameters(), self.method.parameters()]
        trainable = [[parameter for parameter in group if parameter.requires_grad] for group in groups]
        return [{"params": part, "lr": rate} for part, rate in zip(trainable, rates, strict=True) if part]

    @property
    def needs_calibration(self) -> bool:
        """Whether `calibrate` must run before a dial that skips can be used."""
        return self.method.thresholds is not None or self.method.fitted is not None or self.method.solves_dial

    def calibrate(self, batches: Iterable[dict[str, Tensor]], savings: Sequence[float]) -> dict[str, Any]:
        """Calibrate the method for some savings, so that `saving` can be set to them.

        First the method measures its own fitted values, if it has any (`Method.fit`, once per text). Then thresholds
        are calibrated, or dials that are not a share are solved for (`adaptive_bench.model.calibration`). A method that
        needs none of these needs no call.

        Args:
            batches: Held-out training text: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S]. Mask each
                text's last token, which is never fed during generation.
            savings: Shares of token-branches to skip.

        Returns:
            `tokens` used and, under `dials`, one entry per saving: dial, requested and realised share, status.
        """
        self._forget_what_is_stale()
        batches, savings = checked_text(batches), checked_savings(savings)
        if (largest := max(savings, default=0.0)) > (maximum := self.method.max_saving) + 1e-6:  # allows for rounding
            warnings.warn(
                f"{self.spec} can save up to {maximum:.3g} of all token-branches, got savings up to {largest:g}. "
                f"Larger savings are calibrated as {maximum:.3g}.",
                stacklevel=2,
            )
        tokens = sum(int(batch["attention_mask"].sum()) for batch in batches)
        if self.needs_calibration and not tokens:
            raise UsageError(
                f"Calibrating {self.spec} needs held-out training text, got 0 tokens in {len(batches)} batches. "
                "Give at least one batch."
            )
        # First, since thresholds and dials are measured with the fitted values in use.
        if (fitted := self.method.fitted) is not None:
            text = calibration.text_digest(batches)
            if not fitted.is_ready or self._fitted_on != text:
                calibration.let_measure(self, batches, self.method.fit)
                self._fitted_on = text
        points: list[dict[str, Any]] = []
        if self.method.solves_dial:
            points = calibration.solve_dials(self, batches, savings)
        elif self.method.thresholds is not None:
            dials = [self.method.checked_dial(saving) for saving in savings]
            points = calibration.calibrate(self, batches, dials)
        self._measured_on = Snapshot(self.parameters())
        return {"tokens": tokens, "dials": points}

    def prepare_training(self, batches: Iterable[dict[str, Tensor]]) -> None:
        """Let the method measure on held-out text, as for `calibrate`, what its training needs before the first step;
        most methods need nothing.
        """
        batches = checked_text(batches, least=int(self.method.prepares_training))
        if self.method.prepares_training:
            calibration.let_measure(self, batches, self.method.prepare_training)

    def decisions(self, text: str, tokenizer: PreTrainedTokenizerBase, answer: str = "") -> TextDecisions:
        """The method's decisions on a text at the current dial, in `eval()` mode: `keep`, `scores`, `tidy()`.

        Args:
            answer: Text after the prompt, treated as generated by the model.
        """
        return text_decisions(self, tokenizer, *encoded(tokenizer, text, answer))

    def save_pretrained(
        self,
        folder: Path | str,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        pretrained: files.Pretrained | None = None,
        adapters: Adapters | None = None,
    ) -> None:
        """Write model, thresholds, dial and, if given, tokenizer into a folder; see `adaptive_bench.model.saving`."""
        self._forget_what_is_stale()
        files.save(self, Path(folder), tokenizer, pretrained, adapters)

    @classmethod
    def load(
        cls, run: Path | str, method: MethodSpec | str, *, out: Path | str = DEFAULT_OUT, **kwargs: Any
    ) -> AdaptiveModel:
        """Load the model that a run trained for a method, with its first seed, set to the saving of its training.

        Args:
            run: Name of a run (`adaptive-bench list runs`), the beginning of its name, its folder, or `last`.
            out: The folder in which runs are searched by name.
            kwargs: Arguments of `from_pretrained`. If there are several calibrations (one per task), pass
                `calibration` with the name of one, or `None` for none.

        Raises:
            UsageError: No such run, no such method in the run, or several calibrations and none named.
            EnvironmentProblem: The model is not trained yet, or damaged.
        """
        folder, target, sparing = find_trained(run, str(method), out)
        model = cls.from_pretrained(folder, method, **{**sparing, **kwargs})
        if isinstance(model._uncalibrated, UsageError):
            raise model._uncalibrated
        if target and (model._is_calibrated or not model.needs_calibration):
            # A run's calibrations may end below its target, which the method may not reach either.
            model.saving = min(target, max(model._dials, default=target), model.method.max_saving)
        return model

    @classmethod
    def from_pretrained(
        cls,
        folder: Path | str,
        spec: MethodSpec | str | None = None,
        *,
        calibration: str | None = "auto",
        spared: Collection[Site] | None = None,
        keep_first: bool | None = None,
        **kwargs: Any,
    ) -> AdaptiveModel:
        """Load a model written by `save_pretrained`, `adaptive-bench export-model` or the training of a run.

        Args:
            folder: A folder, or, if there is no such folder, an id of the Hugging Face hub.
            spec: Use the weights under another spec that is trained the same way (other semantics, KV policy ...).
            calibration: Name (a task, or `pooled`) of a calibration stored beside the weights. `None` uses the
                calibration saved with the weights. `auto` uses that too if there is one, else the pooled calibration or
                the only one (if there are several others, setting `saving` says so).
            spared, keep_first: As in `build`, for another spec; by default as saved.
            kwargs: Arguments of the backbone's `from_pretrained`, for example `attn_implementation`.

        Raises:
            EnvironmentProblem: The folder holds no saved model, or an incomplete or damaged one.
            UsageError: The spec is trained in another way than the weights in the folder, or there is no such
                calibration.
        """
        if isinstance(folder, str) and is_hub_id(folder):
            folder = download(folder)
        folder = Path(folder)
        saved = files.read(folder)
        spec = saved.spec if spec is None else MethodSpec.of(spec)
        spared = saved.spared if spared is None else spared
        keep_first = saved.keep_first if keep_first is None else keep_first
        model = None
        if spec == saved.spec or trained_alike(spec, saved.spec):
            backbone = saved.load_backbone(**kwargs)
            model = cls.build(backbone, spec, seed=saved.seed, spared=spared, keep_first=keep_first)
        if model is None or not saved.fits(model.method):
            raise UsageError(
                f"The weights in {folder} were trained as {saved.spec}, which does not fit {spec}. Train {spec} first."
            )
        saved.give_to(model.method, is_same=spec == saved.spec)
        model.name_or_path = str(folder)
        if calibration is not None and not saved.by_other_code and not (calibration == "auto" and model._is_calibrated):
            model._take_calibration(folder, calibration)
        model._measured_on = Snapshot(model.parameters())
        return model.eval()

    @property
    def _is_calibrated(self) -> bool:
        thresholds, fitted = self.method.thresholds, self.method.fitted
        return (
            len(self.method.dial_table.measured) > 1
            or (thresholds is not None and thresholds.shares.numel() > 0)
            or (fitted is not None and fitted.is_ready)
        )

    def _take_calibration(self, folder: Path, wanted: str) -> None:
        name = stored_calibration.choose(folder, self.spec, wanted)
        if name is None:
            self._uncalibrated = stored_calibration.why_none(folder, self.spec)
        else:
            stored = stored_calibration.read(folder, self.spec, name)
            stored.give_to(self.method)
            # Rounded as in `saving`, so that 0.1 + 0.2 finds 0.3.
            self._dials = {round(share, 6): dial for share, dial in stored.dials.items()}

    def store_calibration(self, folder: Path | str, name: str, dials: Mapping[float, float], text: str) -> None:
        """Store the calibration beside these weights in a folder, for `from_pretrained` to load.

        Args:
            name: Name of a task, or `pooled`.
            dials: Dial values by the saving for which they were chosen.
            text: Digest of the calibration text; a stored calibration on another text is replaced.
        """
        if self._forget_what_is_stale():
            raise self._stale()
        measured = stored_calibration.StoredCalibration.of(self.method, dials, text)
        stored_calibration.write(Path(folder), self.spec, name, measured)
