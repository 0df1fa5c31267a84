"""`AdaptiveModel`: a Hugging Face causal language model in which a method decides, the engine executes and counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from adaptive_bench.engine.booking import book_head
from adaptive_bench.engine.call import ForwardCall
from adaptive_bench.engine.kv_cache import AdaptiveCache, Session
from adaptive_bench.engine.ledger import Ledger
from adaptive_bench.engine.loop import DecisionMeter, run_layers
from adaptive_bench.errors import UsageError
from adaptive_bench.model import calibration, dial_solving, saving
from adaptive_bench.model.backbone import Backbone
from adaptive_bench.model.generation import generate
from adaptive_bench.model.method import Method, method_class, trained_alike
from adaptive_bench.spec import MethodSpec

Executor = Literal["masked", "packed"]


class AdaptiveModel(nn.Module):
    """Wraps a causal language model and behaves like one. Make one with `build` or `from_pretrained`.

    Attributes:
        backbone: Adapter over the wrapped model.
        method: The method, with parameters of its own.
        ledger: Books every MAC of calls in `eval()` mode.
        loss_terms: Raw values of the last labelled call: `ce` and the method's own.
    """

    def __init__(self, backbone_model: PreTrainedModel, method: Method, spec: MethodSpec) -> None:
        super().__init__()
        self.backbone_model = backbone_model
        self.method = method
        self.spec = spec
        self.backbone = Backbone(backbone_model)
        self.ledger = Ledger(self.backbone.num_layers)
        self.loss_terms: dict[str, float] = {}
        self._meter = DecisionMeter(method)
        if method.freezes_backbone:
            backbone_model.requires_grad_(False)
        self._executor: Executor | None = None

    @classmethod
    def build(cls, backbone_model: PreTrainedModel, spec: MethodSpec | str, *, seed: int = 0) -> AdaptiveModel:
        """Put a method on a model. The method's new parameters depend on the seed alone.

        The backbone is used as it is, not copied: a method that trains its own parameters alone freezes it.

        Like any new module the result is in `train()` mode: call `eval()` before generating or measuring.

        Raises:
            UsageError: Unknown method or parameter, unsupported backbone.
        """
        spec = MethodSpec.parse(spec) if isinstance(spec, str) else spec
        found = method_class(spec)
        config = found.parse_config(spec)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            method = found(config, Backbone(backbone_model), spec.semantics, seed)
        return cls(backbone_model, method.to(backbone_model.device), spec)

    @property
    def executor(self) -> Executor:
        """`masked` in training, `packed` in evaluation, unless set."""
        return self._executor or ("masked" if self.training else "packed")

    @executor.setter
    def executor(self, name: Executor | None) -> None:
        if name not in ("masked", "packed", None):
            raise UsageError(f"An executor is 'masked' or 'packed', got {name!r}.")
        self._executor = name

    @property
    def dial(self) -> float:
        """The one value that moves saved compute; `method.dial` tells its name and range."""
        return self.method.value

    @dial.setter
    def dial(self, value: float) -> None:
        self.method.value = self.method.dial.check(value)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        past_key_values: AdaptiveCache | None = None,
        use_cache: bool = False,
        continuation_mask: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
    ) -> CausalLMOutputWithPast:
        """One forward pass.

        Args:
            input_ids: [B, S].
            attention_mask: [B, S], or [B, T + S] with T cached slots; 0 for padding.
            labels: [B, S], -100 where no loss is wanted; shifted inside as Hugging Face does.
            past_key_values: Cache of earlier calls.
            use_cache: Return a cache.
            continuation_mask: [B, S], tokens after the prompt; by default none in a first call, all in a later one.
            logits_to_keep: 0 for all positions, n for the last n, or indices [K] into S.

        Returns:
            Logits [B, K, V], the loss (cross entropy; in training plus the method's weighted losses) and the cache.
        """
        call = self._begin_call(input_ids, attention_mask, past_key_values, use_cache, continuation_mask)
        call.labels = labels
        call.layer_states = [] if self.method.wants_layer_states and labels is not None else None
        hidden = run_layers(self.method, call, self.backbone.embed(input_ids))
        call.end()

        chosen: Any = (
            slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) and logits_to_keep else slice(None)
        )
        chosen = logits_to_keep if isinstance(logits_to_keep, Tensor) else chosen
        logits = self._logits(call, hidden, chosen)
        loss = None if labels is None else self._loss(call, logits, labels)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=call.cache if use_cache else None)

    generate = generate

    def compute_report(self) -> dict[str, Any]:
        """Saved shares, MACs by bucket and by site since the last reset; see `Ledger`."""
        return self.ledger.report()

    def reset_ledger(self) -> None:
        """Start counting anew."""
        self.ledger.reset()

    def begin_step(self, step: int, total_steps: int) -> None:
        """Tell the method's schedules where training stands, before optimizer step `step` of 1 .. total_steps."""
        self.method.begin_step(step, total_steps)
        self.method.dial_table.clear()  # this and thresholds belong to the weights they were measured on
        if self.method.thresholds is not None:
            self.method.thresholds.clear()

    def parameter_groups(self, learning_rate: float, method_learning_rate: float | None = None) -> list[dict[str, Any]]:
        """Trainable parameters for an optimizer, each once: the backbone's, then those the method adds."""
        rates = (learning_rate, method_learning_rate or learning_rate)
        groups = [self.backbone_model.parameters(), self.method.parameters()]
        trainable = [[parameter for parameter in group if parameter.requires_grad] for group in groups]
        return [{"params": part, "lr": rate} for part, rate in zip(trainable, rates, strict=True) if part]

    @property
    def needs_calibration(self) -> bool:
        """Whether `calibrate` must run before a dial that skips can be used."""
        return self.method.thresholds is not None or self.method.solves_dial

    def calibrate(self, batches: Iterable[dict[str, Tensor]], savings: Sequence[float]) -> dict[str, Any]:
        """Make `dial_for` of some savings ready for use.

        Thresholds are calibrated (`adaptive_bench.model.calibration`), dials that are no share are solved for
        (`adaptive_bench.model.dial_solving`); a method that needs neither needs no call.

        Args:
            batches: Held-out training text: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S].
            savings: Shares of token-branches to skip.

        Returns:
            `tokens` used and, under `dials`, one entry per saving: dial, requested and realised share, status.

        Raises:
            UsageError: The method needs calibration and there is no text.
        """
        batches = list(batches)
        tokens = sum(int(batch["attention_mask"].sum()) for batch in batches)
        if self.needs_calibration and not tokens:
            raise UsageError(
                f"Calibrating {self.spec} needs held-out training text, got 0 tokens in {len(batches)} batches. "
                "Give at least one batch."
            )
        points: list[dict[str, Any]] = []
        if self.method.solves_dial:
            points = dial_solving.solve(self, batches, savings)
        elif self.method.thresholds is not None:
            dials = [self.method.dial_for(saving) for saving in savings]
            points = calibration.calibrate(self, batches, dials)
        return {"tokens": tokens, "dials": points}

    def save_pretrained(self, folder: Path | str) -> None:
        """Write `backbone/` (Hugging Face layout), `method.safetensors` and `adaptive.json`; see `saving`."""
        saving.save(self, Path(folder))

    @classmethod
    def from_pretrained(cls, folder: Path | str, spec: MethodSpec | str | None = None, **kwargs: Any) -> AdaptiveModel:
        """Load what `save_pretrained` wrote.

        Args:
            spec: Use the weights under another spec that is trained the same way (other semantics, KV policy ...).
            kwargs: For the backbone's `from_pretrained`, for example `attn_implementation`.

        Raises:
            EnvironmentProblem: The folder is not one of ours, is incomplete or damaged.
            UsageError: The spec is trained in another way than the weights in the folder were.
        """
        saved = saving.read(Path(folder))
        spec = MethodSpec.parse(spec) if isinstance(spec, str) else spec or saved.spec
        alike = spec == saved.spec or trained_alike(spec, saved.spec)
        model = cls.build(saved.load_backbone(**kwargs), spec, seed=saved.seed) if alike else None
        if model is None or _shapes(model.method.state_dict()) != _shapes(saved.weights):
            raise UsageError(
                f"The weights in {folder} were trained as {saved.spec}, which does not fit {spec}. Train {spec} first."
            )
        model.method.load_state_dict(saved.weights)
        if spec == saved.spec:  # what was measured under another spec is not taken over
            if model.method.thresholds is not None:
                model.method.thresholds.load(saved.thresholds)
            model.method.dial_table.measured = dict(saved.dial_table)
            model.dial = saved.dial
        return model.eval()

    def _begin_call(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        cache: AdaptiveCache | None,
        use_cache: bool,
        continuation_mask: Tensor | None,
    ) -> ForwardCall:
        batch, length = input_ids.shape
        packed, policy = self.executor == "packed", self.method.kv_policy
        phase: Literal["prefill", "decode"] = "decode" if cache is not None and cache.get_seq_length() else "prefill"
        valid = (
            torch.ones_like(input_ids, dtype=torch.bool)
            if attention_mask is None
            else attention_mask[:, -length:].bool()
        )
        if cache is None and (use_cache or packed or policy != "recompute"):
            cache = AdaptiveCache(batch, input_ids.device, policy, ragged=packed)
        zeros = torch.zeros(batch, dtype=torch.long, device=input_ids.device)
        session = cache.session if cache is not None else Session(zeros, zeros)
        positions = (session.lengths[:, None] + valid.cumsum(dim=1) - 1).clamp(min=0)
        if continuation_mask is None:
            continuation_mask = torch.full_like(valid, phase == "decode")
        return ForwardCall(
            backbone=self.backbone,
            input_ids=input_ids,
            valid=valid,
            positions=positions.masked_fill(~valid, 0),
            continuation=continuation_mask.bool(),
            rotary=self.backbone.rotary(self.backbone.decoder.embed_tokens.weight, positions),
            cache=cache,
            session=session,
            kv_policy=policy,
            packed=packed,
            training=self.training,
            phase=phase,
            ledger=None if self.training else self.ledger,
            meter=self._meter,
        )

    def _logits(self, call: ForwardCall, hidden: Tensor, chosen: Any) -> Tensor:
        """Logits [B, K, V] of the chosen positions; the head runs only where no probe answered already."""
        states, needed = hidden[:, chosen], call.valid[:, chosen]
        if not call.answers:
            book_head(call, needed=int(needed.sum()), computed=needed.numel(), reused=0)
            return self.backbone.head(self.backbone.final_norm(states))
        everywhere = torch.arange(call.valid.numel(), device=hidden.device).view_as(call.valid)[:, chosen]
        answered = torch.full((call.valid.numel(),), -1, dtype=torch.long, device=hidden.device)
        tokens = torch.cat([tokens for tokens, _ in call.answers])
        answered[tokens] = torch.arange(tokens.numel(), device=hidden.device)
        source = answered[everywhere]
        open_ = source < 0
        computed = self.backbone.head(self.backbone.final_norm(states[open_]))
        logits = computed.new_empty(*source.shape, computed.shape[-1])
        logits[open_] = computed
        logits[~open_] = torch.cat([logits for _, logits in call.answers])[source[~open_]].to(logits.dtype)
        book_head(call, needed=int((needed & open_).sum()), computed=int(open_.sum()), reused=int((~open_).sum()))
        return logits

    def _loss(self, call: ForwardCall, logits: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.backbone_model.loss_function(
            logits=logits, labels=labels, vocab_size=self.backbone.vocab_size
        )
        terms = {"ce": loss.detach()}
        if self.training:  # the other losses are there to train with
            loss = loss * self.method.main_loss_weight(call)
            for name, (weight, value) in self.method.losses(call).items():
                terms[name] = value.detach()
                loss = loss + weight * value
        self.loss_terms = {name: float(value) for name, value in terms.items()}
        return loss


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in tensors.items()}
