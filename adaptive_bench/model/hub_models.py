"""Models on the Hugging Face hub: loads pretrained weights, uploads and downloads saved models, writes model cards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PreTrainedModel

from adaptive_bench.errors import EnvironmentProblem, message_of
from adaptive_bench.hub import Needed, OutOfReach, hub_or_cache
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.stored_calibration import POOLED
from adaptive_bench.store.keys import changed, digests


@dataclass(frozen=True)
class Pretrained:
    """The location of pretrained weights.

    Attributes:
        location: A folder in Hugging Face layout, or a hub id.
        revision: Commit of the hub id, `None` for a folder.
        sha256: Digests of a folder's weights and config; loading refuses files with other digests.
    """

    location: str
    revision: str | None = None
    sha256: Mapping[str, str] = field(default_factory=dict)

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
        folder = Path(self.location)
        # A hub's commit cannot change, but a folder can.
        if self.revision is None and (different := changed(folder, self.sha256)):
            raise EnvironmentProblem(
                f"{rule} as they were, but {', '.join(different)} changed or is missing. Put the folder back, or train "
                f"again."
            )
        here = self.revision is None
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
        except OutOfReach as error:
            raise EnvironmentProblem(
                f"{rule}, but they cannot be loaded: the Hugging Face hub cannot be asked ({error.answer.detail}), and "
                f"its cache here has no copy. Connect to the hub, with HF_HUB_OFFLINE unset."
            ) from error
        except (OSError, ValueError, SafetensorError) as error:
            raise EnvironmentProblem(
                f"{rule}, but they cannot be loaded: {message_of(error)[:300]}. Put the folder back, or set HF_TOKEN "
                f"for a gated model of the hub."
            ) from error


_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def is_hub_id(name: str) -> bool:
    """Whether a name has the form of a hub repository and is no local folder."""
    return _HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def fetched(name: str) -> Path:
    """Download a repository of the hub; returns its folder in the cache."""
    from huggingface_hub import snapshot_download

    try:
        with hub_or_cache(Needed("model", name)):
            return Path(snapshot_download(name))
    except OutOfReach as error:
        if (beside := Path(name).parent).is_dir():  # the name is more likely a mistyped path than a hub id
            raise EnvironmentProblem(
                f"A saved model is loaded from a folder or by a hub id, got {name!r}: there is no such folder in "
                f"{str(beside)!r}, and as a hub id it cannot be looked up ({error.answer.detail}). Check the path; a "
                f"run's model is loaded with AdaptiveModel.load(run, method)."
            ) from error
        raise
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(
            f"{name!r} is no folder here and cannot be loaded from the Hugging Face hub: {message_of(error)[:300]}. "
            f"Check the name; a private model needs HF_TOKEN."
        ) from error


def uploaded(folder: Path, name: str, *, private: bool | None, token: str | None, message: str) -> str:
    """Upload a folder to a repository of the hub, creating it if needed; returns its address."""
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    try:
        repository = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=repository.repo_id, commit_message=message)
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(
            f"The model cannot be uploaded to {name!r}: {message_of(error)[:300]}. Check the name, and log in with "
            f"`hf auth login` or give token=..."
        ) from error
    return str(repository)


def licence_of(location: str) -> str | None:
    """The licence named in the card of pretrained weights, in their folder or the hub's cache; `None` if unknown."""
    from huggingface_hub import metadata_load, try_to_load_from_cache

    readme = Path(location) / "README.md"
    if is_hub_id(location):
        cached = try_to_load_from_cache(location, "README.md")
        # Otherwise it is `None`, or the mark of a file that the hub does not have.
        readme = Path(cached) if isinstance(cached, str) else readme
    try:
        licence = (metadata_load(readme) or {}).get("license")
    except (OSError, ValueError, yaml.YAMLError):  # no card, or an unreadable one
        return None
    return licence if isinstance(licence, str) else None


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
    savings: Sequence[float] = (),
    results: str = "",
) -> str:
    """A README in the hub's format, with the licence of the pretrained model if its card names one.

    Args:
        title: Title of the page, and the folder's name in the example.
        base: Hub id of the pretrained model, if it has one.
        results: Markdown for the end of the page.
    """
    about = {
        "library_name": "adaptive-bench",
        "pipeline_tag": "text-generation",
        "tags": ["adaptive-computation", model.spec.name],
        **({"base_model": base} if base else {}),
        **({"license": licence} if (licence := licence_of(base or str(model.backbone_model.name_or_path))) else {}),
    }
    told = f" Calibrated on: {', '.join(calibrations)}." if calibrations else ""
    if savings:
        told += f" Calibrated for savings of {', '.join(f'{saving:.3g}' for saving in savings)}."
    several = len(calibrations) > 1 and POOLED not in calibrations
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
