"""Saves and loads models: a folder with `backbone/` (Hugging Face layout), `method.safetensors` and `adaptive.json`.

Instead of `backbone/`, the folder may name pretrained weights, with `adapters/` to merge into them.

The folder has no `config.json`, so that a plain `from_pretrained` fails instead of silently losing the method. The
folder may also hold a tokenizer in Hugging Face's layout; runs add calibrations (`stored_calibration`).
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from adaptive_bench.errors import EnvironmentProblem, UsageError, message_of
from adaptive_bench.hub import Needed, OutOfReach, hub_or_cache, licence_of
from adaptive_bench.method import Method, Site
from adaptive_bench.model import stored_calibration
from adaptive_bench.model.adapters import Adapters, merged, without_adapters
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import changed, code_behind, digests
from adaptive_bench.store.manifest import make_again
from adaptive_bench.store.runs import is_run

_SCHEMA = 1
_ABOUT, _TENSORS, _BACKBONE, _ADAPTERS = "adaptive.json", "method.safetensors", "backbone", "adapters"
_TOKENIZER = "tokenizer_config.json"
_NOT_WHAT_IT_SHOULD_BE = (ValueError, KeyError, TypeError, AttributeError)  # errors from reading malformed JSON


@dataclass(frozen=True)
class Pretrained:
    """The location of pretrained weights: a folder in Hugging Face layout, or a hub id with its commit."""

    location: str
    revision: str | None = None  # `None` for a folder
    sha256: Mapping[str, str] = field(default_factory=dict)  # of a folder's weights and config

    @classmethod
    def at(cls, location: str, revision: str | None) -> Pretrained:
        """The weights at a location, with their current digests."""
        if revision is not None:
            return cls(location, revision)
        folder = Path(location)
        return cls(location, None, digests(folder, [folder / "config.json", *folder.glob("*.safetensors")]))

    def load(self, **kwargs: Any) -> PreTrainedModel:
        """Load the model, by default in fp32; `kwargs` are for its `from_pretrained`."""
        rule = f"A model saved without its backbone's weights needs those of {self.location!r}"
        here = self.revision is None
        # A hub's commit cannot change, but a folder can.
        if here and (different := changed(Path(self.location), self.sha256)):
            raise EnvironmentProblem(
                f"{rule} as they were, but {', '.join(different)} changed or is missing. Put the folder back, or train "
                f"again."
            )
        try:
            # A folder is loaded without asking the hub; its revision means nothing.
            with nullcontext() if here else hub_or_cache(Needed("model", self.location)):
                return AutoModelForCausalLM.from_pretrained(
                    self.location,
                    revision=self.revision or "main",
                    local_files_only=here,
                    use_safetensors=True,
                    **{"dtype": torch.float32} | kwargs,
                )
        except (OSError, ValueError, SafetensorError, OutOfReach) as error:
            raise EnvironmentProblem(
                f"{rule}, but they cannot be loaded: {message_of(error)[:300].rstrip('.')}. Put the folder back, or "
                f"connect to the hub, with HF_TOKEN set for a gated model."
            ) from error


@dataclass(frozen=True)
class SavedModel:
    """A model written by `save`, without the backbone."""

    folder: Path
    spec: MethodSpec
    seed: int
    dial: float
    weights: dict[str, Tensor]  # of the method
    calibrated: stored_calibration.StoredCalibration
    pretrained: Pretrained | None = None  # the weights behind the backbone, if the folder holds none
    by_other_code: bool = False  # the method's code has changed since, so the calibration is no longer valid
    spared: frozenset[Site] = frozenset()
    keep_first: bool = False

    def fits(self, method: Method) -> bool:
        """Whether the method's parameters have the saved names and shapes."""
        shapes = [{name: value.shape for name, value in state.items()} for state in (method.state_dict(), self.weights)]
        return shapes[0] == shapes[1]

    def give_to(self, method: Method, *, is_same: bool) -> None:
        """Load the weights into a method, and also the calibration unless the spec, the code or the spared sites
        changed.
        """
        method.load_state_dict(self.weights)
        if self.by_other_code:
            warnings.warn(
                f"The model in {self.folder} was saved by another version of {self.spec.name!r}, so its calibration "
                f"is not loaded. Call `calibrate` before setting a saving.",
                stacklevel=3,
            )
        elif is_same and (method.spared, method.keep_first) == (self.spared, self.keep_first):
            self.calibrated.give_to(method)
            method.value = method.dial.check(self.dial)

    def load_backbone(self, **kwargs: Any) -> PreTrainedModel:
        """The backbone; `kwargs` are for its `from_pretrained`."""
        if self.pretrained is not None:
            if not (self.folder / _ADAPTERS).is_dir():
                return self.pretrained.load(**kwargs)
            dtype = kwargs.pop("dtype", None)  # adapters are merged in fp32
            model = merged(self.pretrained.load(**kwargs), self.folder / _ADAPTERS)
            return model if dtype is None else model.to(dtype)
        folder = self.folder / _BACKBONE
        try:
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except (OSError, *_NOT_WHAT_IT_SHOULD_BE) as error:
            raise _damaged(self.folder, _BACKBONE, error) from error
        try:
            return AutoModelForCausalLM.from_pretrained(
                folder, config=config, local_files_only=True, use_safetensors=True, trust_remote_code=False, **kwargs
            )
        except (OSError, SafetensorError) as error:
            raise _damaged(self.folder, _BACKBONE, error) from error


def save(
    model: ForwardModel,
    folder: Path,
    tokenizer: PreTrainedTokenizerBase | None = None,
    pretrained: Pretrained | None = None,
    adapters: Adapters | None = None,
) -> None:
    """Write a model into a folder, creating it if needed. Stored calibrations there, of earlier weights, are removed.

    The file by which a saved model is recognised is written last.

    Args:
        pretrained: Pretrained weights that the backbone equals, apart from the adapters; the folder then names them
            instead of copying them.
        adapters: Adapters to write into the folder.
    """
    if model.backbone.quantized != "none":
        raise UsageError(
            f"A model is saved with the weights it was trained with, got one that is quantized as "
            f"{model.backbone.quantized}. Save it first; quantize what is loaded."
        )
    folder.mkdir(parents=True, exist_ok=True)
    # First: if the rest is interrupted, what is half written must not look like a model.
    (folder / _ABOUT).unlink(missing_ok=True)
    if (earlier := folder / stored_calibration.FOLDER).is_dir():
        shutil.rmtree(earlier)
    if pretrained is None:
        without_adapters(model.backbone_model).save_pretrained(folder / _BACKBONE)
    elif adapters is not None:
        adapters.save(folder / _ADAPTERS)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    calibrated = stored_calibration.StoredCalibration.of(model.method, {}, "")
    parts = {"method": model.method.state_dict(), "thresholds": calibrated.thresholds, "fitted": calibrated.fitted}
    save_file(stored_calibration.flat(parts), folder / _TENSORS)
    about = {"schema": _SCHEMA, "spec": str(model.spec), "seed": model.method.seed, "dial": model.dial}
    about["code"] = _code_of(model.spec)
    about["spared"], about["keep_first"] = sorted(model.method.spared), model.method.keep_first
    about["dial_table"] = list(model.method.dial_table.measured.items())
    if pretrained is not None:
        about["pretrained"] = asdict(pretrained)
    files = [file for part in (_BACKBONE, _ADAPTERS) for file in (folder / part).rglob("*.*")]
    about["sha256"] = digests(folder, [folder / _TENSORS, *files])  # tells this model from others; see `lm-eval`
    (folder / _ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a model's folder."""
    if not (folder / _TOKENIZER).is_file():
        raise EnvironmentProblem(
            f"A model that reads text needs a tokenizer beside it, but there is no {_TOKENIZER} in {folder}. Runs of "
            "this version put it there; for an older one call model.save_pretrained(folder, tokenizer=...)."
        )
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, *_NOT_WHAT_IT_SHOULD_BE) as error:
        raise _damaged(folder, _TOKENIZER, error) from error


def read(folder: Path) -> SavedModel:
    """Read a folder written by `save`, without loading the backbone."""
    if not (folder / _ABOUT).is_file():
        # Weights without the file that is written last: saving was interrupted, or is under way.
        if (folder / _TENSORS).is_file():
            hint = make_again(folder)
        elif is_run(folder):
            hint = "It is a run: AdaptiveModel.load(run, method) finds the model of a method."
        elif any(folder.glob("model*.safetensors")) and not (folder / "config.json").is_file():
            hint = (
                "It has only weights, as transformers.Trainer writes them by itself: train with "
                "callbacks=[AdaptiveCallback()], and call model.save_pretrained in place of trainer.save_model."
            )
        else:
            raise UsageError(
                f"A saved adaptive model has a file {_ABOUT} and a run a config.yaml, but {str(folder)!r} has neither. "
                f"`adaptive-bench list runs` shows the runs; AdaptiveModel.build puts a method on a plain model."
            )
        raise EnvironmentProblem(f"A saved adaptive model has a file {_ABOUT}, not found in {folder}. {hint}")
    try:
        about = json.loads((folder / _ABOUT).read_bytes())
        if about["schema"] != _SCHEMA:
            raise EnvironmentProblem(
                f"This version reads saved models of schema {_SCHEMA}, got {about['schema']!r} in {folder / _ABOUT}. "
                "Load it with the version that wrote it, or save it again."
            )
        spec, seed, dial = MethodSpec.parse(about["spec"]), int(about["seed"]), float(about["dial"])
        dial_table = {float(travel): float(saving) for travel, saving in about["dial_table"]}
        spared = frozenset(Site(int(layer), str(branch)) for layer, branch in about.get("spared", []))  # type: ignore[arg-type]
        keep_first = bool(about.get("keep_first"))
        pretrained = Pretrained(**about["pretrained"]) if "pretrained" in about else None
        now = _code_of(spec)  # models of earlier versions lack `code`: they used version 1 of each method
        by_other_code = about.get("code", now | {"methods": dict.fromkeys(now["methods"], 1)}) != now
    except (OSError, *_NOT_WHAT_IT_SHOULD_BE) as error:
        raise _damaged(folder, _ABOUT, error) from error
    try:
        tensors = load_file(folder / _TENSORS)
    except (OSError, SafetensorError) as error:
        raise _damaged(folder, _TENSORS, error) from error
    weights, thresholds, fitted = stored_calibration.parts(tensors, "method", "thresholds", "fitted")
    calibrated = stored_calibration.StoredCalibration("", thresholds, dial_table, {}, fitted)
    return SavedModel(folder, spec, seed, dial, weights, calibrated, pretrained, by_other_code, spared, keep_first)


def _code_of(spec: MethodSpec) -> dict[str, Any]:
    """Versions of this distribution's methods behind a spec, and the source of a plugin's method."""
    behind = code_behind(spec.name, "evaluation")
    return {"methods": behind.get("methods", {}), "source": behind.get("source")}


def _damaged(folder: Path, part: str, error: Exception) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"A saved adaptive model needs a readable {part}, got {type(error).__name__} in {folder}: {error}. "
        f"{make_again(folder)}"
    )


_CARD = """# {title}

`{spec}` on a {layers}-layer {family}, trained and measured with adaptive-bench: a method decides which tokens execute
which attention and MLP branch, and the share of skipped branches is set after training.

```python
from adaptive_bench import AdaptiveModel
from transformers import AutoTokenizer

model = AdaptiveModel.from_pretrained("{folder}"{calibration})
tokenizer = AutoTokenizer.from_pretrained("{folder}")
model.saving = 0.15
written = model.generate(**tokenizer("...", return_tensors="pt"), max_new_tokens=64)
model.compute_report()["saved"]
```

`AutoModelForCausalLM` cannot load this folder: the method would be lost.{calibrations}
"""


def model_card(
    model: ForwardModel,
    *,
    title: str,
    base: str | None,
    calibrations: Sequence[str] = (),
    results: str = "",
) -> str:
    """A README in the hub's format, with the licence of the pretrained model (`base`, if it has a hub id) if its card
    names one.
    """
    about = {
        "library_name": "adaptive-bench",
        "pipeline_tag": "text-generation",
        "tags": ["adaptive-computation", model.spec.name],
        **({"base_model": base} if base else {}),
        **({"license": licence} if (licence := licence_of(base or str(model.backbone_model.name_or_path))) else {}),
    }
    told = f" Calibrated on: {', '.join(calibrations)}." if calibrations else ""
    several = len(calibrations) > 1 and stored_calibration.POOLED not in calibrations
    text = _CARD.format(
        title=title,
        folder=title,
        spec=model.spec,
        layers=model.backbone.num_layers,
        family=model.backbone_model.config.model_type,
        calibration=f', calibration="{calibrations[0]}"' if several else "",
        calibrations=told,
    )
    return f"---\n{yaml.safe_dump(about, sort_keys=False)}---\n\n{text}\n{results}".rstrip() + "\n"
