"""A plugin's method on a tiny random model: what would go wrong hours later goes wrong here."""

from __future__ import annotations

from typing import Any

import torch

from adaptive_bench.errors import AdaptiveBenchError, PluginFault
from adaptive_bench.faults import explained, in_plugin
from adaptive_bench.jobs.job import named_plugins
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
    saving = min(0.2, float(method.max_saving))
    model.calibrate([batch | {"continuation_mask": later}], [saving])
    model.dial = method.checked_dial(saving)
    with torch.no_grad():
        cache = model(**batch, continuation_mask=later, use_cache=True).past_key_values
        model(input_ids=ids[:, :1], past_key_values=cache)
