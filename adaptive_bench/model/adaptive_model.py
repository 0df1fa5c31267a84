"""`AdaptiveModel`: a Hugging Face causal language model in which a method decides, the engine executes and counts."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from adaptive_bench.backbone import Backbone, Snapshot
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.method import Site, method_of, trained_alike
from adaptive_bench.method.dial import check_step
from adaptive_bench.model import calibration, stored_calibration
from adaptive_bench.model import saving as files
from adaptive_bench.model.adapters import Adapters
from adaptive_bench.model.calibration import checked_savings, checked_text
from adaptive_bench.model.hub_models import Pretrained, fetched, is_hub_id, model_card, uploaded
from adaptive_bench.model.hugging_face import HuggingFaceModel, why_no_backbone
from adaptive_bench.model.text_decisions import TextDecisions, encoded, text_decisions
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.checkpoints import find_trained
from adaptive_bench.store.shelves import DEFAULT_OUT


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
        """Put a method on a model, in `train()` mode. The method's new parameters depend on the seed alone.

        The backbone is used as it is, not copied: a method that trains its own parameters alone freezes it.

        Args:
            spared: Branches that every token executes, `{Site(0, "mlp")}` say; `model.site_costs` measures them.
            keep_first: The first token of a text executes everything. Both are for methods with `spares`.

        Raises:
            UsageError: Unknown method or parameter, unsupported backbone, no model, no spec or no such site.
        """
        if not isinstance(backbone_model, PreTrainedModel):
            raise UsageError(why_no_backbone(backbone_model))
        spec = MethodSpec.of(spec)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            method = method_of(spec, Backbone(backbone_model), seed)
        method.set_spared(spared, keep_first)
        return cls(backbone_model, method.to(backbone_model.device), spec)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._dials: dict[float, float] = {}  # that a stored calibration chose, by saving
        self._uncalibrated: UsageError | EnvironmentProblem | None = None  # why none was taken
        self._measured_on: Snapshot | None = None  # the weights that thresholds and dial table belong to
        self._fitted_on = ""  # digest of the text that `Method.fit` read

    @property
    def saving(self) -> float:
        """The share of token-branches that the dial claims to skip; what was really saved is in `compute_report`.

        Setting it sets the dial.

        Raises:
            UsageError: The method cannot save so much, or not before `calibrate`; read where nothing was measured.
        """
        self._forget_what_is_stale()
        if (claimed := self.method.claimed_saving) is None:
            raise UsageError(
                f"The saving of a dial that was solved for is known where it was measured, got {self.method.dial.name} "
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
        known = self._dials.get(round(share, 6))
        try:
            self.dial = self.method.checked_dial(share) if known is None else known
            if not self.training:
                calibration.check_ready(self.method, share)
        except UsageError as error:
            self.method.value = before
            if self._uncalibrated is None or self._is_calibrated:
                raise
            raise self._uncalibrated from error

    def begin_step(self, step: int, total_steps: int) -> None:
        """Tell the method's schedules where training stands, before optimizer step `step` of 1 .. total_steps."""
        check_step(step, total_steps)
        self.method.begin_step(step, total_steps)
        self.forget_calibration()

    def forget_calibration(self) -> None:
        """Drop thresholds and the dial table: they belong to the weights and the text they were measured on."""
        self._measured_on = None
        self._dials.clear()
        for measured in (self.method.dial_table, self.method.thresholds, self.method.fitted):
            if measured is not None:
                measured.clear()

    def _forget_what_is_stale(self) -> bool:
        """Drop a calibration of other weights than the model has now; whether there was one."""
        if not self._is_calibrated:
            self._measured_on = None
        elif self._measured_on is None:  # thresholds were put in by hand: for these weights
            self._measured_on = Snapshot(self.parameters())
        elif not self._measured_on.holds(self.parameters()):
            self.forget_calibration()
            return True
        return False

    def _drop_stale(self, *, begins: bool) -> None:
        super()._drop_stale(begins=begins)
        if begins and self._forget_what_is_stale():
            method = self.method
            reads_thresholds = method.thresholds is not None and method.skip_share > 0.0
            if reads_thresholds or (method.fitted is not None and self.dial != method.dial.skip_nothing):
                raise self._stale()

    def _stale(self) -> UsageError:
        return UsageError(
            f"What is calibrated belongs to the weights it was measured on, but the weights of this {self.spec} "
            f"changed since. Call model.calibrate(batches, savings) again, or set the dial to "
            f"{self.method.dial.skip_nothing:g}, which skips nothing."
        )

    def parameter_groups(self, learning_rate: float, method_learning_rate: float | None = None) -> list[dict[str, Any]]:
        """Trainable parameters for an optimizer, each once: the backbone's, then those the method adds."""
        rates = learning_rate, method_learning_rate or learning_rate
        groups = [self.backbone_model.parameters(), self.method.parameters()]
        trainable = [[parameter for parameter in group if parameter.requires_grad] for group in groups]
        found = [{"params": part, "lr": rate} for part, rate in zip(trainable, rates, strict=True) if part]
        if not found:
            raise UsageError(
                f"A training changes some parameter, got a {self.spec} of which all are frozen. Call "
                f"requires_grad_(True) on what is to train; a method that needs no training says trains = False."
            )
        return found

    @property
    def needs_calibration(self) -> bool:
        """Whether `calibrate` must run before a dial that skips can be used."""
        return self.method.thresholds is not None or self.method.fitted is not None or self.method.solves_dial

    def calibrate(self, batches: Iterable[dict[str, Tensor]], savings: Sequence[float]) -> dict[str, Any]:
        """Make `dial_for` of some savings ready for use.

        A method that measures something of its own does so (`Method.fit`; once for a text), then thresholds are
        calibrated (`adaptive_bench.model.calibration`), or dials that are no share solved for
        (`adaptive_bench.model.calibration`); a method that needs none of these needs no call.

        Args:
            batches: Held-out training text: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S]. Mask what
                is never fed when text is written: its last token.
            savings: Shares of token-branches to skip.

        Returns:
            `tokens` used and, under `dials`, one entry per saving: dial, requested and realised share, status.

        Raises:
            UsageError: The method needs calibration and there is no text, or text or savings are none.
        """
        self._forget_what_is_stale()
        batches, savings = checked_text(batches), checked_savings(savings)
        if (largest := max(savings, default=0.0)) > (maximum := self.method.max_saving) + 1e-6:  # of rounding
            warnings.warn(
                f"{self.spec} can save up to {maximum:.3g} of all token-branches, got savings up to {largest:g}: what "
                f"is beyond is calibrated as {maximum:.3g}.",
                stacklevel=2,
            )
        tokens = sum(int(batch["attention_mask"].sum()) for batch in batches)
        if self.needs_calibration and not tokens:
            raise UsageError(
                f"Calibrating {self.spec} needs held-out training text, got 0 tokens in {len(batches)} batches. "
                "Give at least one batch."
            )
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
        """Let a method measure what its training needs, before the first step; most need nothing.

        Args:
            batches: Held-out training text, as for `calibrate`.

        Raises:
            UsageError: It is none.
        """
        batches = checked_text(batches, least=int(self.method.prepares_training))
        if self.method.prepares_training:
            calibration.let_measure(self, batches, self.method.prepare_training)

    def decisions(self, text: str, tokenizer: PreTrainedTokenizerBase, answer: str = "") -> TextDecisions:
        """What the method decides on a text at the model's dial, in `eval()` mode: `keep`, `scores`, `tidy()`.

        Args:
            answer: Text after the prompt that counts as written by the model.
        """
        return text_decisions(self, tokenizer, *encoded(tokenizer, text, answer))

    def save_pretrained(
        self,
        folder: Path | str,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        pretrained: Pretrained | None = None,
        adapters: Adapters | None = None,
    ) -> None:
        """Write model, thresholds, dial and, if given, tokenizer into a folder; see `adaptive_bench.model.saving`.

        Args:
            pretrained: Weights that the backbone's are equal to, but for the adapters: they are named, not copied.
            adapters: Written beside their name.
        """
        folder = Path(folder)
        self._forget_what_is_stale()
        files.save(self, folder, pretrained, adapters)
        if tokenizer is not None:
            files.add_tokenizer(folder, tokenizer)

    def push_to_hub(
        self,
        repo_id: str,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        private: bool | None = None,
        token: str | None = None,
        commit_message: str = "Upload an adaptive model",
    ) -> str:
        """Upload what `save_pretrained` writes, with a model card, to a repository of the Hugging Face hub.

        `AdaptiveModel.from_pretrained(repo_id)` loads it. Returns the repository's address.

        Raises:
            EnvironmentProblem: The hub refuses, or cannot be reached.
        """
        with TemporaryDirectory() as name:
            folder, base = Path(name), str(self.backbone_model.name_or_path)
            self.save_pretrained(folder, tokenizer)
            savings = sorted({*self._dials, *self.method.dial_table.measured.values()} - {0.0})
            card = model_card(self, title=repo_id, base=base if is_hub_id(base) else None, savings=savings)
            (folder / "README.md").write_text(card, encoding="utf-8")
            return uploaded(folder, repo_id, private=private, token=token, message=commit_message)

    @classmethod
    def load(
        cls, run: Path | str, method: MethodSpec | str, *, out: Path | str = DEFAULT_OUT, **kwargs: Any
    ) -> AdaptiveModel:
        """The model that a run trained for a method, of its first seed, at the saving that it was trained towards.

        Args:
            run: Name of a run (`adaptive-bench list runs`), its beginning, its folder, or `last`.
            out: Where runs are looked for by name.
            kwargs: For `from_pretrained`: of several calibrations (one a task) name one, or take none (`None`).

        Raises:
            UsageError: No such run, no such method of it, or several calibrations and none named.
            EnvironmentProblem: Not trained yet, or damaged.
        """
        folder, target, sparing = find_trained(run, str(method), out)
        model = cls.from_pretrained(folder, method, **{**sparing, **kwargs})
        if isinstance(model._uncalibrated, UsageError):
            raise model._uncalibrated
        if target and (model._is_calibrated or not model.needs_calibration):
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
        """Load what `save_pretrained`, `push_to_hub` or a run's training wrote.

        Args:
            folder: Or an id of the Hugging Face hub, where there is no such folder.
            spec: Use the weights under another spec that is trained the same way (other semantics, KV policy ...).
            calibration: Name (a task, or `pooled`) of one stored beside the weights; `None`: what was saved with them;
                `auto`: that, else the pooled or only one (where there are several, setting `saving` says so).
            spared, keep_first: As in `build`, for another spec; by default as saved.
            kwargs: For the backbone's `from_pretrained`: `attn_implementation`, say.

        Raises:
            EnvironmentProblem: The folder is not one of ours, is incomplete or damaged.
            UsageError: The spec is trained in another way than the weights in the folder were, or there is no such
                calibration.
        """
        if isinstance(folder, str) and is_hub_id(folder):
            folder = fetched(folder)
        folder = Path(folder)
        saved = files.read(folder)
        spec = saved.spec if spec is None else MethodSpec.of(spec)
        alike = spec == saved.spec or trained_alike(spec, saved.spec)
        how = {"seed": saved.seed, **saved.sparing(spared, keep_first)}
        model = cls.build(saved.load_backbone(**kwargs), spec, **how) if alike else None
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
        name = stored_calibration.choose(folder, self.spec, wanted, needed=self.needs_calibration)
        if name is None:
            self._uncalibrated = stored_calibration.why_none(folder, self.spec)
        else:
            stored = stored_calibration.read(folder, self.spec, name)
            stored.give_to(self.method)
            self._dials = {round(share, 6): dial for share, dial in stored.dials.items()}

    def store_calibration(self, folder: Path | str, name: str, dials: Mapping[float, float], text: str) -> None:
        """Put what calibration found out beside the weights in a folder, for `from_pretrained` to load.

        Args:
            folder: Of a saved model with these weights.
            name: A task, or `pooled`.
            dials: Dial values by the saving they were used for.
            text: Digest of the text it was measured on: what was stored for another text is replaced.
        """
        if self._forget_what_is_stale():
            raise self._stale()
        measured = stored_calibration.StoredCalibration.of(self.method, dials, text)
        stored_calibration.write(Path(folder), self.spec, name, measured)
