"""A plugin's method on a tiny random model: what would go wrong hours later goes wrong here.

What costs too much to look at in a run is looked at here: values of decisions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from adaptive_bench.errors import AdaptiveBenchError, PluginFault
from adaptive_bench.faults import explained, in_plugin
from adaptive_bench.jobs.plugins import named_plugins
from adaptive_bench.method import Decision, Method, SiteView
from adaptive_bench.method.answers import check_decision
from adaptive_bench.method.declared import check_method
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.spec import MethodSpec

_TINY = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
_TINY |= {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
_TOKENS = 24


def try_method(spec: MethodSpec, family: str, layers: int) -> AdaptiveBenchError | None:
    """A step of training, a pass with skipping and a token after it on a tiny random model; what goes wrong."""
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            tiny = AutoModelForCausalLM.from_config(
                AutoConfig.for_model(family, num_hidden_layers=layers, **_TINY), dtype=torch.float32
            )
            _try(AdaptiveModel.build(tiny, spec))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        return explained(error, named_plugins([spec.name]))
    return None


def _try(model: AdaptiveModel) -> None:
    method = model.method
    watch(method)
    model.train()
    ids = torch.randint(1, _TINY["vocab_size"], (2, _TOKENS))
    batch: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    later = torch.arange(_TOKENS).expand_as(ids) >= _TOKENS // 2
    model.prepare_training([batch | {"continuation_mask": later}])
    model.begin_step(1, 1)
    loss = model(**batch, labels=ids).loss
    if not torch.isfinite(loss.detach()):
        terms = ", ".join(f"{name} {float(value):g}" for name, value in model.raw_loss_terms.items())
        raise PluginFault(
            f"The loss of a first step of training is finite, but {in_plugin(type(method))} makes it {loss.item():g} "
            f"on a small random model ({terms}). Correct its losses and main_loss_weight."
        )
    if loss.requires_grad:
        loss.backward()
    model.eval()
    check_method(method)
    saving = min(0.2, float(method.max_saving))
    model.calibrate([batch | {"continuation_mask": later}], [saving])
    model.dial = method.checked_dial(saving)
    with torch.no_grad():
        cache = model(**batch, continuation_mask=later, use_cache=True).past_key_values
        model(input_ids=ids[:, :1], past_key_values=cache)


def watch(method: Method) -> None:
    """Have each decision of a method looked at, which reads values from the device."""
    decide = method.decide

    def looked_at(view: SiteView) -> Decision:
        decision = decide(view)
        check_decision(decision, view.hidden, method, training=view.call.training, closely=True)
        _check_state(method, view)
        return _checked(method, view, decision)

    method.decide = looked_at  # type: ignore[method-assign]


def _check_state(method: Method, view: SiteView) -> None:
    rows = len(view.hidden)
    for name, value in view.call.session.state.items():
        if not (isinstance(value, Tensor) and value.dim() and len(value) == rows):
            got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise PluginFault(
                f"What a method keeps in call.session.state are tensors with a row for each of the {rows} requests, "
                f"got {got} under {name!r} from {in_plugin(type(method))}. Keep such a tensor, or put what is of one "
                f"call alone into call.scratch."
            )


def _checked(method: Method, view: SiteView, decision: Decision) -> Decision:
    keep, rule = decision.keep, f"decide of {in_plugin(type(method))} gives"
    if decision.nobody and keep is not None and bool(keep.any()):
        raise PluginFault(f"Where nobody is True no token executes, but {rule} a keep with some that do. Leave it out.")
    for name in ("scale", "input_scale"):
        scale = getattr(decision, name)
        if scale is not None and not _is_finite(scale, keep):
            raise PluginFault(
                f"A scale is finite where tokens execute, but {rule} a {name} with NaN or infinity at layer "
                f"{view.site.layer}. Bound what it is computed from."
            )
    instead = decision.otherwise
    if instead is None:
        return decision

    def finite(tokens: Tensor) -> Tensor:
        given = instead(tokens)
        if isinstance(given, Tensor) and not bool(given.isfinite().all()):
            raise PluginFault(
                f"What tokens get instead of a branch is finite, but {rule} an otherwise with NaN or infinity at layer "
                f"{view.site.layer}. Bound what it is computed from."
            )
        return given

    return replace(decision, otherwise=finite)


def _is_finite(scale: Tensor, keep: Tensor | None) -> bool:
    """Whether a scale is finite at every token that executes."""
    finite = scale.isfinite().all(dim=-1)
    return bool((finite if keep is None else finite | ~keep).all())
