"""What a reader should know of each method beside its scores: causality, KV policy, executor, settings tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from adaptive_bench.backbone import Backbone
from adaptive_bench.method import method_class, method_of
from adaptive_bench.probed import stored_matrix
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.shapes import find_shape
from adaptive_bench.runs.planning.works import TrainingRun
from adaptive_bench.source import code_digest, code_of
from adaptive_bench.spec import MethodSpec, method_name
from adaptive_bench.store.keys import canonical
from adaptive_bench.store.records import SCHEMA, Record

_LAYERS = 8  # of the model without memory that a method is asked about


def method_facts(whole: Plan) -> dict[str, Any]:
    """Plain values for `methods.json`: by spec,

    causality: `C0`, `C1` or `C2`, as the conformance suite found it; `None` where this spec was never checked.
    kv_policy: What becomes of keys and values of skipped tokens; `None` where the method cannot be asked.
    executor: What measured it.
    code: Digest of the code that trained and evaluated it.
    variant: The spec without the numbers that `tune` searches: what the method is, whatever it was tuned to.
    settings_tried: How many different settings of the method were trained on this backbone in the run's folder, those
        of the run and of `tune` counted once each, whatever the seed.
    """
    tried = _settings(whole.trainings)
    backbone = _empty_backbone(find_shape(whole.config.project_onto))
    found = {}
    for text in whole.config.methods:
        spec = MethodSpec.parse(text)
        found[str(spec)] = {
            "causality": stored_matrix(spec.name).get(str(spec), {}).get("causality"),
            "kv_policy": _kv_policy(spec, backbone),
            "executor": "packed",
            "code": recorded_code(whole, spec) or code_of(spec.name),
            "variant": str(_untuned(spec)),
            "settings_tried": len(tried.get(spec.name, ())),
        }
    return {"schema": SCHEMA, "methods": found}


def recorded_code(whole: Plan, spec: MethodSpec) -> str | None:
    """Digest of the code that trained and evaluated a method, by its records; `None` where they do not tell, as those
    of early versions, or there are none. It is `source.code_of` the method that measured them.
    """
    for sweep in whole.sweeps:
        trained, measured = (one.get("code") for one in (sweep.training.content, sweep.content))
        if sweep.spec == spec and isinstance(trained, dict) and isinstance(measured, dict):
            # What is evaluated without a training of its own hangs on that of another method.
            own = {name: version for name, version in measured.items() if name != "evaluation"}
            return code_digest(own | {"training": trained.get("training")}, measured)
    return None


def _untuned(spec: MethodSpec) -> MethodSpec:
    # A number from a scale tunes a method; a choice, or a count of layers, makes another variant of it.
    space = method_class(spec).Config.search_space
    tuned = {name for name, search in space.items() if search.scale in ("linear", "log")}
    return replace(spec, params=tuple((name, value) for name, value in spec.params if name not in tuned))


def _settings(trainings: Sequence[TrainingRun]) -> dict[str, set[str]]:
    """Different settings by name of the method among all trainings beside those of a run."""
    found: dict[str, set[str]] = {}
    backbones = {training.content.get("backbone") for training in trainings}
    for folder in _folders({training.folder.parent for training in trainings}):
        config = Record(folder).read("config")
        if isinstance(config, dict) and config.get("backbone") in backbones and isinstance(config.get("method"), str):
            name = method_name(config["method"])
            same = {key: value for key, value in config.items() if key not in ("seed", "data", "target")}
            found.setdefault(name, set()).add(canonical(same))
    return found


def _folders(above: set[Path]) -> list[Path]:
    return sorted(path for one in above if one.is_dir() for path in one.iterdir() if path.is_dir())


def _empty_backbone(shape: PretrainedConfig) -> Backbone:
    values = shape.to_dict() | {"num_hidden_layers": _LAYERS, "layer_types": None}
    with torch.device("meta"):
        return Backbone(AutoModelForCausalLM.from_config(type(shape).from_dict(values)))


def _kv_policy(spec: MethodSpec, backbone: Backbone) -> str | None:
    try:
        with torch.device("meta"):
            return str(method_of(spec, backbone).kv_policy)
    except Exception:  # noqa: BLE001 - a plugin's method may refuse these sizes with any error; its table stays
        return None
