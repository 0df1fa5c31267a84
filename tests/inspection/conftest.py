import pytest
import torch
from inspected_text import ANSWER, PROMPT

from adaptive_bench import AdaptiveModel, find_backbone
from adaptive_bench.headroom.named_models import Subjects
from adaptive_bench.model.text_decisions import encoded


@pytest.fixture(scope="session")
def tokenizer():
    return find_backbone("nano").load_tokenizer()


@pytest.fixture(scope="session")
def subjects(tokenizer):
    """The nano model under three methods: one with gates, one that decides on layers, one without scores."""
    prompt, answer = encoded(tokenizer, PROMPT, ANSWER)
    ids = torch.tensor([prompt + answer])
    after = torch.arange(ids.shape[1])[None] >= len(prompt)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "continuation_mask": after}
    models = []
    for spec in ("gateskip", "mod", "random_skip"):
        model = AdaptiveModel.build(find_backbone("nano").load_model(), spec, seed=1).eval()
        with torch.no_grad():  # gates and routers that tell tokens apart, as training makes them
            for name, parameter in model.method.named_parameters():
                if name.endswith("weight"):
                    parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
        model.calibrate([batch], (0.1, 0.3))
        models.append(model)
    return Subjects("nano", models, tokenizer, find_backbone("nano"))
