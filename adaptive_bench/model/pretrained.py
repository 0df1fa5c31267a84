"""Names the pretrained weights that a saved model without weights of its own stands on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PreTrainedModel

from adaptive_bench.errors import EnvironmentProblem, message_of
from adaptive_bench.hub import Needed, OutOfReach, hub_or_cache
from adaptive_bench.store.keys import changed, digests


@dataclass(frozen=True)
class Pretrained:
    """Where pretrained weights are.

    Attributes:
        location: A folder in Hugging Face layout, or a hub id.
        revision: Commit of the hub id, `None` for a folder.
        sha256: Digests of a folder's weights and config: others are refused.
    """

    location: str
    revision: str | None = None
    sha256: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, location: str, revision: str | None) -> Pretrained:
        """Those at a place, as they are now."""
        if revision is not None:
            return cls(location, revision)
        folder = Path(location)
        return cls(location, None, digests(folder, [folder / "config.json", *folder.glob("*.safetensors")]))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def load(self, **kwargs: Any) -> PreTrainedModel:
        """The model in fp32; `kwargs` are for its `from_pretrained`.

        Raises:
            EnvironmentProblem: It is not there any more, or is another one by now.
        """
        rule = f"A model saved without its backbone's weights needs those of {self.location!r}"
        folder = Path(self.location)
        if self.revision is None and (different := changed(folder, self.sha256)):
            raise EnvironmentProblem(
                f"{rule} as they were, but {', '.join(different)} changed or is missing. Put the folder back, or train "
                f"again."
            )
        here = self.revision is None
        try:
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
