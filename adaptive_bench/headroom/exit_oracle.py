"""The oracle per token: early exits on the cache that earlier exits left behind.

For every token that writes, one full pass on the cache as it is says which token the model would choose now and from
which layer on its predictions stay with it (its stable exit). Then the token runs again, up to that layer only,
and leaves the K,V that the policy gives it. Only the second run is counted. So the saving could be had by whoever knew
the exits; the text may drift from the dense one, and the score says what that costs.

Prompts run at full depth but for their last token, which writes the first token of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.errors import UsageError
from adaptive_bench.method import KVPolicy, Phase, SiteView
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.interventions import Prescribed, prescribed_model


def layer_predictions(model: AdaptiveModel, input_ids: Tensor, **call: Any) -> Tensor:
    """The likeliest next token after each of the L layers, [L, B, S], in a call at a dial that skips nothing: what the
    final norm and the head make of the residual stream there.
    """
    output = model(input_ids, output_hidden_states=True, **call)
    head, norm = model.backbone.head, model.backbone.final_norm
    early = [head(norm(state)).float().argmax(dim=-1) for state in output.hidden_states[1:-1]]
    return torch.stack([*early, output.logits.float().argmax(dim=-1)])


def stable_exits(predicted: Tensor) -> Tensor:
    """Stable exits in 1 .. L of predictions [L, ...]."""
    meets = (predicted == predicted[-1]).int()
    kept = meets.flip(0).cumprod(dim=0).sum(dim=0)  # layers at the end that all agree
    return len(predicted) - kept + 1


class OnlineExits(AdaptiveModel):
    """Evaluated like any model; made by `online_exits`.

    Attributes:
        prober: Runs the full pass of each token on a copy of the cache; its ledger is nobody's.
        exits: Exit depths of all tokens that wrote so far, one tensor [B] a column.
    """

    method: Prescribed
    prober: AdaptiveModel
    exits: list[Tensor]

    @torch.no_grad()
    def forward(  # type: ignore[override] # the harness gives no other arguments
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        past_key_values: AdaptiveCache | None = None,
        use_cache: bool = False,
        continuation_mask: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        phase: Phase | None = None,
        requests: Sequence[int] | None = None,
        return_logits: bool = True,
        documents: Tensor | None = None,
    ) -> CausalLMOutputWithPast:
        """As the harness calls a model: prompts padded on the left, logits of the last positions.

        Raises:
            UsageError: Another kind of call.
        """
        batch, length = input_ids.shape
        writing = logits_to_keep if isinstance(logits_to_keep, int) else logits_to_keep.shape[-1]
        if (
            labels is not None
            or not 0 < writing <= length
            or (attention_mask is not None and not bool(attention_mask[:, -writing:].all()))
        ):
            raise UsageError(
                "The exit oracle reads texts that end with the tokens that write, without labels. Evaluate it with "
                "adaptive_bench.evaluation.evaluate."
            )
        cache = self.new_cache(batch, length) if past_key_values is None else past_key_values
        phase = phase or ("decode" if cache.get_seq_length() else "prefill")
        shared: dict[str, Any] = {"past_key_values": cache, "use_cache": True, "phase": phase, "requests": requests}
        prompt = length - writing
        if prompt:
            self._leave_at(None)
            nothing = torch.empty(0, dtype=torch.long, device=input_ids.device)
            mask = None if attention_mask is None else attention_mask[:, :prompt]
            super().forward(input_ids[:, :prompt], mask, logits_to_keep=nothing, documents=documents, **shared)
        logits: list[Tensor] = []
        for place in range(prompt, length):
            column = input_ids[:, place : place + 1]
            probe = cache.fork(torch.arange(batch, device=input_ids.device))
            told = layer_predictions(self.prober, column, past_key_values=probe, use_cache=True, phase=phase)
            exits = stable_exits(told[:, :, -1])
            self.exits.append(exits.cpu())
            self._leave_at(exits)
            left = super().forward(column, logits_to_keep=1, **shared)[0]
            logits.append(left)
        return CausalLMOutputWithPast(logits=torch.cat(logits, dim=1), past_key_values=cache if use_cache else None)

    def _leave_at(self, exits: Tensor | None) -> None:
        """Tokens [B, 1] run the layers below their exits [B]; all of them without."""

        def rule(view: SiteView) -> Tensor | None:
            return None if exits is None else (exits > view.site.layer)[:, None]

        self.method.rule = rule


def online_exits(backbone_model: PreTrainedModel, kv: KVPolicy = "recompute") -> OnlineExits:
    """The oracle on a model, with what tokens that left leave in the layers above."""
    label = f"exit_oracle_{kv}"
    model: OnlineExits = prescribed_model(backbone_model, kv=kv, looks_ahead=True, kind=OnlineExits, label=label)
    # Not a submodule: its parameters are the same ones.
    object.__setattr__(model, "prober", prescribed_model(backbone_model, kv=kv))
    model.exits = []
    return model
