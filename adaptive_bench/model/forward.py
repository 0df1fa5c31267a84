"""Runs the forward pass of an adaptive model: the method decides, the engine executes and counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from adaptive_bench.backbone import Backbone
from adaptive_bench.engine.engine_call import Between, EngineCall, Executor
from adaptive_bench.engine.flop_counter import DecisionMeter, Tally
from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.engine.layer_loop import run_layers, run_prescribed
from adaptive_bench.engine.ledger import Ledger, Report
from adaptive_bench.errors import UsageError
from adaptive_bench.method import Decision, Method, Phase, Session
from adaptive_bench.model import arguments
from adaptive_bench.spec import MethodSpec


class ForwardModel(nn.Module):
    """A backbone, a method and a ledger. `AdaptiveModel` adds building, calibrating, saving and loading.

    Attributes:
        ledger: Books every MAC of calls in `eval()` mode; setting the dial empties it.
        spread: Gathers the rows of a training batch from several processes, during distributed training.
        raw_loss_terms: Loss values of the last labelled call: `ce`, and the method's own losses by name.
        gradient_checkpointing: In training, recompute the branches in the backward pass to save memory.
        own_losses_weigh: In training, a factor on the method's own losses, for calls that are part of a batch.
        between: In `eval()` mode, a stage between decisions and executors (`model.interventions`); `None` for none.
    """

    def __init__(self, backbone_model: PreTrainedModel, method: Method, spec: MethodSpec) -> None:
        super().__init__()
        self.backbone_model = backbone_model
        self.method = method
        self.spec = spec
        self.backbone = Backbone(backbone_model)
        self.ledger = Ledger(self.backbone.costs)
        self.raw_loss_terms: dict[str, Tensor] = {}
        self.gradient_checkpointing, self.own_losses_weigh = False, 1.0
        self._meter = DecisionMeter(method)  # hooks stay for the model's lifetime
        if method.freezes_backbone:
            backbone_model.requires_grad_(False)
        self.spread: Callable[[Tensor], Tensor] | None = None
        self.between: Between | None = None
        self._executor: Executor | None = None

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
    def loss_terms(self) -> dict[str, float]:
        """`raw_loss_terms` as numbers."""
        return {name: float(value) for name, value in self.raw_loss_terms.items()}

    @property
    def draws(self) -> bool:
        """Whether decisions are drawn at random, so that texts of different documents must not share work."""
        return self.method.draws or self.between is not None

    @property
    def is_causal(self) -> bool:
        """Whether decisions depend on earlier text alone (class C0), so that a text may be computed in parts."""
        return self.method.semantics == "bench" or self.method.paper_class == "C0"

    @property
    def dial(self) -> float:
        """The one value that moves saved compute; `method.dial` has its name and range."""
        return self.method.value

    @dial.setter
    def dial(self, value: float) -> None:
        if self.between is not None:
            raise UsageError(
                f"Shuffled decisions belong to one dial value, got {value:g} while those of {self.dial:g} are in use. "
                "Set the dial first, then collect decisions."
            )
        self.method.value = self.method.dial.check(value)
        self.ledger.reset()  # a report covers one dial value only

    def _drop_stale(self) -> None:
        """Before a text is read in `eval()` mode, drop everything derived from weights that have changed since."""
        self.backbone.drop_stale()
        if (costs := self.backbone.costs) is not self.ledger.costs:
            self.ledger.reprice(costs)

    def new_cache(self, batch: int, capacity: int = 0) -> AdaptiveCache:
        """An empty cache for B requests, with room for `capacity` tokens each before its buffers have to grow."""
        ragged = self.executor == "packed"
        return AdaptiveCache(batch, self.backbone_model.device, self.method.kv_policy, ragged=ragged, capacity=capacity)

    @torch.compiler.disable(reason="which tokens run, and so every shape, differs from call to call")
    def forward(
        self,
        input_ids: Tensor | None = None,
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
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """One forward pass.

        Args:
            input_ids: [B, S].
            attention_mask: [B, S], or [B, T + S] with T cached slots; 0 for padding. On the CPU or on the model's
                device; the host reads it.
            labels: [B, S], -100 where no loss is wanted; shifted inside as Hugging Face does. On the CPU or on the
                model's device; from the CPU, the host need not wait to count them. A label that follows padding does
                not count: nothing predicts the first token of a row, whichever side is padded.
            past_key_values: Cache of earlier calls.
            use_cache: Return a cache.
            continuation_mask: [B, S], tokens after the prompt; by default none in a first call, all in a later one.
            logits_to_keep: 0 for all positions, n for the last n, indices [K] into S, or [B, K] with indices per row.
            phase: The phase to book the call under; by default `decode` if the cache already holds tokens.
            requests: [B] number of requests that share each row; the ledger charges each request.
            return_logits: In training with labels, `False` runs the head only for positions with a loss.
            documents: [B] key of the document each row belongs to (`document_key`), in the first call of a text. Random
                draws of different documents are then independent; by default draws depend on the text alone.
            position_ids: [B, S] or [1, S]; must equal the positions that `attention_mask` and the cache imply.
            inputs_embeds, output_attentions: Refused; peft always names them.
            output_hidden_states: Also return the residual stream, as Hugging Face does: the embeddings, then the stream
                after each layer, the last one normalised; L + 1 tensors [B, S, H].
            return_dict: `False` returns a tuple of the outputs that are not `None`.
            num_items_in_batch: Number of labels that follow a token in all micro-batches of an optimizer step, as
                `Trainer` counts them. The loss is then its mean times this call's share of those labels. Summed over
                micro-batches, cross entropies equal those of one batch, and so do losses of the method that are means
                over labels; other losses are weighted in the same way, as in `run`.

        Returns:
            Logits [B, K, V], the loss (cross entropy, plus the method's weighted losses in training) and the cache.
        """
        if inputs_embeds is not None or output_attentions:
            raise UsageError(
                "An adaptive model reads token ids, as random draws and losses hang on them, and keeps no attention "
                "weights, as tokens that skip a branch have none, got inputs_embeds or output_attentions. Pass "
                "input_ids alone, or run the dense model: model.backbone_model(...)."
            )
        if output_hidden_states and self.method.kv_policy == "defer":
            raise UsageError(
                "Hidden states are those after each layer, but under the KV policy 'defer' tokens wait before the deep "
                "ones, got output_hidden_states=True. Leave it out, or choose another kv=."
            )
        call = self._begin_call(
            input_ids, attention_mask, continuation_mask, past_key_values, use_cache, phase, requests, documents
        )
        input_ids = call.input_ids
        if position_ids is not None:
            arguments.check_positions(position_ids, call.positions, call.valid)
        share = None if labels is None else arguments.take_labels(call, labels, num_items_in_batch)
        if self.training:
            call.again = partial(self._run_again, input_ids, attention_mask, continuation_mask)
        wants_states = output_hidden_states or (self.method.wants_layer_states and labels is not None)
        call.layer_states = [] if wants_states else None
        embedded = call.embed()
        hidden = run_layers(self.method, call, embedded)
        call.end()

        if self.training and labels is not None and not return_logits:
            return CausalLMOutputWithPast(loss=self._loss(call, call.cross_entropy(hidden), share))
        logits = self._logits(call, hidden, arguments.positions_to_keep(logits_to_keep))
        loss = states = None
        if labels is not None:
            # The backbone's own loss function shifts the labels by one.
            given = {"logits": logits, "labels": call.labels, "vocab_size": self.backbone.vocab_size}
            loss = self._loss(call, self.backbone_model.loss_function(**given), share)
        if output_hidden_states and call.layer_states is not None:
            states = (embedded, *call.layer_states[:-1], self.backbone.final_norm(hidden))
        cache = call.cache if use_cache else None
        output = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache, hidden_states=states)
        return output.to_tuple() if return_dict is False else output

    @torch.no_grad()
    def _run_again(
        self, input_ids: Tensor, mask: Tensor | None, continuation: Tensor | None, decisions: Sequence[Decision]
    ) -> Tensor:
        """Residual stream [B, S, H] of a training call under other decisions, one per layer."""
        # A call of its own, so that the records of the method's losses stay those of the first one.
        call = self._begin_call(input_ids, mask, continuation)
        return run_prescribed(call, self.backbone.embed(input_ids), decisions)

    def residual_stream(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, continuation_mask: Tensor | None = None
    ) -> Tensor:
        """[B, S, H] the input of the final norm, for texts read in one call; arguments as in `forward`."""
        call = self._begin_call(input_ids, attention_mask, continuation_mask)
        hidden = run_layers(self.method, call, call.embed())
        call.end()
        return hidden

    def run_part(
        self,
        input_ids: Tensor,
        past_key_values: AdaptiveCache,
        layers: range,
        states: Tensor | None = None,
    ) -> Tensor:
        """Run only some consecutive layers of a forward pass over tokens [B, S], without padding, that continue a text.

        Args:
            past_key_values: Cache of earlier calls; the layers below `layers` already hold K,V of these tokens.
            states: [B, S, H] before the first of these layers; `None` if it is the model's first layer.

        Returns:
            Hidden states [B, S, H] after the last of these layers, or logits [B, S, V] if it is the model's last layer.
        """
        call = self._begin_call(input_ids, None, None, past_key_values, True, "decode")
        hidden = run_layers(self.method, call, call.embed() if states is None else states, layers)
        call.end()
        if layers.stop < self.backbone.num_layers:
            return hidden
        return self._logits(call, hidden, arguments.positions_to_keep(0))

    def compute_report(self) -> Report:
        """The savings of all calls since the dial was last set (through `dial` or `saving`) or since `reset_ledger`."""
        return self.ledger.report()

    def reset_ledger(self) -> None:
        """Empty the ledger without changing the dial."""
        self.ledger.reset()

    def _begin_call(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        continuation_mask: Tensor | None,
        cache: AdaptiveCache | None = None,
        use_cache: bool = False,
        phase: Phase | None = None,
        requests: Sequence[int] | None = None,
        documents: Tensor | None = None,
    ) -> EngineCall:
        assert input_ids is not None
        arguments.check_ids(input_ids)
        arguments.check_cache(cache, input_ids)
        if attention_mask is not None:
            arguments.check_mask(attention_mask, input_ids, cache)
        batch, length = input_ids.shape
        executor, policy = self.executor, self.method.kv_policy
        continues = cache is not None and cache.get_seq_length() > 0
        # At the beginning of a text only: comparing weights is too slow for every decode step.
        if not (self.training or continues):
            self._drop_stale()
        if phase is None:
            phase = "decode" if continues else "prefill"
        # Packed branches attend to the cache, and policies other than `recompute` need its slots.
        if cache is None and (use_cache or executor == "packed" or policy != "recompute"):
            cache = self.new_cache(batch)
        session = cache.session if cache is not None else Session.start(batch, input_ids.device)
        if documents is not None:
            session.name_documents(documents)
        if attention_mask is None:
            valid = torch.ones_like(input_ids, dtype=torch.bool)
            host_valid = np.ones((batch, length), dtype=bool)
            # A decode step adds the number 0, which spares it a tensor.
            steps: Any = torch.arange(length, device=input_ids.device) if length > 1 else 0
            host_steps: Any = np.arange(length)
            positions = session.lengths[:, None] + steps
        else:
            valid = attention_mask[:, -length:].bool()  # the mask may cover cached tokens too
            host_valid = valid.cpu().numpy()
            valid = valid.to(input_ids.device)
            host_steps = host_valid.cumsum(axis=1) - 1
            # Padding on the left would count as -1.
            positions = (session.lengths[:, None] + valid.cumsum(dim=1) - 1).clamp(min=0)
        # A decode step takes rows of a stored table. The weight only says which dtype the tables get.
        if positions.shape[1] > 1 or self.training:
            rotary = self.backbone.rotary(self.backbone.decoder.embed_tokens.weight, positions)
        else:
            rotary = self.backbone.rotary.at(positions, reach=int(session.host_lengths.max(initial=0)) + 1)
        tally = None
        if not self.training:
            host_positions = session.host_lengths[:, None] + host_steps
            behind = None if requests is None else np.asarray(requests)
            packed = executor == "packed"
            tally = Tally(self.ledger, self.backbone, phase, host_valid, host_positions, behind, packed=packed)
        # By the default mask below every token then follows the prompt, which the host thus knows.
        only_follows = continues and phase == "decode" and continuation_mask is None
        if continuation_mask is None:
            continuation_mask = torch.full_like(valid, phase == "decode")
        return EngineCall(
            backbone=self.backbone,
            input_ids=input_ids,
            valid=valid,
            host_valid=host_valid,
            positions=positions if attention_mask is None else positions.masked_fill(~valid, 0),
            continuation=continuation_mask.bool(),
            rotary=rotary,
            cache=cache,
            session=session,
            kv_policy=policy,
            executor=executor,
            training=self.training,
            draws=self.draws,
            between=None if self.training else self.between,
            recomputes=self.training and self.gradient_checkpointing,
            phase=phase,
            tally=tally,
            meter=self._meter,
            only_follows=only_follows,
            spread=self.spread if self.training else None,
        )

    def _logits(self, call: EngineCall, hidden: Tensor, chosen: tuple[Any, Any]) -> Tensor:
        """Logits [B, K, V] of the chosen positions; the head runs only for positions that no probe has answered."""
        if call.probed:
            return self._logits_of_all(call, hidden, chosen)
        states = hidden[chosen]
        on_host = tuple(part.cpu().numpy() if isinstance(part, Tensor) else part for part in chosen)
        needed = call.host_valid[on_host]
        if not call.answers:
            self._book_head(call, needed, np.ones_like(needed))
            if call.decodes and states.shape[1] == 1:
                return self.backbone.step_head(states)
            return self.backbone.head(self.backbone.final_norm(states))
        # Flat token index of every chosen position.
        everywhere = torch.arange(call.valid.numel(), device=hidden.device).view_as(call.valid)[chosen]
        # For each token, which of all answers is its own; -1 if no probe answered it.
        answered = torch.full((call.valid.numel(),), -1, dtype=torch.long, device=hidden.device)
        tokens = torch.cat([tokens for tokens, _ in call.answers])
        answered[tokens] = torch.arange(tokens.numel(), device=hidden.device)
        source = answered[everywhere]
        open_ = source < 0  # positions for which the head has to run
        computed = self.backbone.head(self.backbone.final_norm(states[open_]))
        logits = computed.new_empty(*source.shape, computed.shape[-1])
        logits[open_] = computed
        logits[~open_] = torch.cat([logits for _, logits in call.answers])[source[~open_]].to(logits.dtype)
        self._book_head(call, needed, open_.cpu().numpy())
        return logits

    def _logits_of_all(self, call: EngineCall, hidden: Tensor, chosen: tuple[Any, Any]) -> Tensor:
        """`_logits` with fixed shapes: the head runs for all rows, and answers of probes replace its logits."""
        logits = self.backbone.step_head(hidden)
        answered = torch.zeros_like(call.valid)
        for leaving, given in call.probed:
            logits = torch.where(leaving[..., None], given.view_as(logits).to(logits.dtype), logits)
            answered = answered | leaving
        for tokens, given in call.answers:  # from probes of some tokens only
            logits = logits.flatten(0, 1).index_copy(0, tokens, given.to(logits.dtype)).view_as(logits)
            answered = answered.flatten().index_fill(0, tokens, True).view_as(answered)
        if call.tally is not None:
            call.tally.note_head(call.host_valid[chosen], answered[chosen])
            call.tally.settle()
        return logits[chosen]

    def _book_head(self, call: EngineCall, needed: np.ndarray, computed: np.ndarray) -> None:
        """Book that the head ran for the `computed` ones of positions [B, K]; probes had answered the others."""
        if call.tally is not None:
            weigh = call.tally.weigh
            call.tally.book_head(needed=weigh(needed & computed), computed=weigh(computed), reused=weigh(~computed))

    def _loss(self, call: EngineCall, loss: Tensor, share: Tensor | None) -> Tensor:
        """The loss to minimise, from the cross entropy of the model's own output; with `share`, that share of it."""
        terms = {"ce": loss.detach()}
        if self.training:  # the method's own losses apply only in training
            main, losses = self.method.main_loss_weight(call), self.method.losses(call)
            loss = loss * main
            for name, (weight, value) in losses.items():
                terms[name] = value.detach()
                loss = loss + (weight * self.own_losses_weigh) * value
        self.raw_loss_terms = terms
        if share is None:
            return loss
        share = share.to(loss.device)
        return torch.where(share == 0, 0.0, loss * share)  # without labels the mean loss is NaN
