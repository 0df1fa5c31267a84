"""The model card of an adaptive model: what it is, how to load it, what it scored."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from adaptive_bench.model.hub_folder import licence_of
from adaptive_bench.model.hugging_face import HuggingFaceModel
from adaptive_bench.model.stored_calibration import POOLED

_TEXT = """# {title}

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
    model: HuggingFaceModel,
    *,
    title: str,
    base: str | None,
    calibrations: Sequence[str] = (),
    savings: Sequence[float] = (),
    results: str = "",
) -> str:
    """A README in the hub's format, with the licence of the pretrained model where its own card names one.

    Args:
        model: The model.
        title: Of the page, and the folder's name in the example.
        base: Hub id of the pretrained model, if it has one.
        calibrations: Names of the stored calibrations.
        savings: Shares of token-branches that the model was calibrated for.
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
    text = _TEXT.format(
        title=title,
        folder=title,
        spec=model.spec,
        layers=model.backbone.num_layers,
        family=model.config.model_type,
        calibration=f', calibration="{calibrations[0]}"' if several else "",
        calibrations=told,
    )
    return f"---\n{yaml.safe_dump(about, sort_keys=False)}---\n\n{text}\n{results}".rstrip() + "\n"
