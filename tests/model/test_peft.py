"""peft's adapters in an adaptive model: run, counted, trained and saved, whichever way they were put on."""

from copy import deepcopy

import pytest
import torch
from transformers import AutoModelForCausalLM

from adaptive_bench import AdaptiveCallback
from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens

peft = pytest.importorskip("peft", reason="the extra `lora` is not installed")

MAPS = ["q_proj", "v_proj", "o_proj", "down_proj"]
RANK = 2


def config(**changes):
    return peft.LoraConfig(**{"task_type": "CAUSAL_LM", "r": RANK, "target_modules": MAPS} | changes)


def spread(model):
    """As after training: adapters that change something."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture
def adapted(make_backbone):
    """`adapted(around)`: an adaptive model with adapters, put on the backbone before, or on the model after."""

    def make(around, spec="random_skip"):
        backbone = make_backbone("llama")
        if not around:
            peft.get_peft_model(backbone, config())
        model = AdaptiveModel.build(backbone, spec, seed=1)
        if around:
            peft.get_peft_model(model, config())
        return spread(model).eval()

    return make


@pytest.fixture
def merged_model(make_backbone):
    """The same weights as one map each, merged by peft."""
    inner = spread(peft.get_peft_model(make_backbone("llama"), config()))
    return AdaptiveModel.build(inner.merge_and_unload(), "random_skip", seed=1).eval()


@pytest.mark.parametrize("around", [False, True])
def test_adapters_run_in_every_executor(around, adapted, merged_model, make_backbone, random_text):
    """Prefill, decode steps and the masked executor compute what the merged maps do."""
    model, ids = adapted(around), random_text(2, 12)
    bare = AdaptiveModel.build(make_backbone("llama"), "random_skip", seed=1).eval()
    for each in (model, merged_model, bare):
        each.saving = 0.3
    with torch.no_grad():
        wanted = merged_model(ids).logits
        assert not torch.allclose(bare(ids).logits, wanted, atol=1e-2)
        torch.testing.assert_close(model(ids).logits, wanted, atol=1e-4, rtol=1e-4)
        model.executor = "masked"
        torch.testing.assert_close(model(ids).logits, wanted, atol=1e-4, rtol=1e-4)
        model.executor = None
    assert new_tokens(model, ids, max_new_tokens=8) == new_tokens(merged_model, ids, max_new_tokens=8)


@pytest.mark.parametrize("around", [False, True])
def test_the_ledger_counts_adapters(around, adapted, make_backbone, random_text):
    """A map of n inputs and m outputs costs rank * (n + m) MACs more a token, also where adapters come later."""
    plain = AdaptiveModel.build(make_backbone("llama"), "random_skip", seed=1).eval()
    model, ids = adapted(around), random_text(2, 12)
    with torch.no_grad():
        model(ids), plain(ids)
    layers = model.config.num_hidden_layers
    shapes = {name: module.weight.shape for name, module in plain.backbone_model.named_modules() if "_proj" in name}
    per_token = {part: RANK * sum(sum(shapes[name]) for name in shapes if name.endswith(part)) for part in MAPS}
    assert len(shapes) == 7 * layers
    macs, bare = model.compute_report()["macs"], plain.compute_report()["macs"]
    assert macs["core.attn_q_o"] - bare["core.attn_q_o"] == 24 * (per_token["q_proj"] + per_token["o_proj"])
    assert macs["core.attn_kv"] - bare["core.attn_kv"] == 24 * per_token["v_proj"]
    assert macs["core.mlp"] - bare["core.mlp"] == 24 * per_token["down_proj"]
    assert model.compute_report()["saved"]["net"] == 0.0


@pytest.mark.parametrize("around", [False, True])
def test_a_saved_model_has_its_adapters_merged(around, adapted, random_text, tmp_path):
    """It loads without peft's layout and computes the same; the model in memory keeps its adapters."""
    model, ids = adapted(around), random_text(2, 12)
    before = deepcopy(model.state_dict())
    model.save_pretrained(tmp_path / "model")
    loaded = AdaptiveModel.from_pretrained(tmp_path / "model")
    assert not any("lora" in name for name in loaded.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits, atol=1e-4, rtol=1e-4)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("maps", [["q_proj", "lm_head"], ["embed_tokens"], ["embed_tokens", "lm_head"]])
def test_adapters_on_tied_embeddings(maps, family, make_backbone, random_text, tmp_path):
    """Hugging Face reads the saved copy as two matrices and computes what it does with adapters; a head costs rank *
    (H + V) MACs more a token, and an embedding rank * H, since its first map is looked up.
    """
    backbone, ids = make_backbone(family, tie_word_embeddings=True), random_text(2, 12)
    bare = AdaptiveModel.build(deepcopy(backbone), "dense").eval()
    spread(peft.get_peft_model(backbone, config(target_modules=maps)))
    model = AdaptiveModel.build(backbone, "dense").eval()
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    with torch.no_grad():
        wanted = backbone(ids).logits
        bare(ids, mask), model(ids, mask)
        macs, before = model.compute_report()["macs"], bare.compute_report()["macs"]
        torch.testing.assert_close(model(ids).logits, wanted, atol=1e-4, rtol=1e-4)
        model.save_pretrained(tmp_path / "model")
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model" / "backbone").eval()
        torch.testing.assert_close(loaded(ids).logits, wanted, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(backbone(ids).logits, wanted, atol=0, rtol=0)
    assert loaded.lm_head.weight is not loaded.model.embed_tokens.weight
    assert model.config.tie_word_embeddings and backbone.lm_head.weight is backbone.model.embed_tokens.weight
    width, size = model.config.hidden_size, model.config.vocab_size
    per_token = RANK * (("lm_head" in maps) * (width + size) + ("embed_tokens" in maps) * width)
    assert macs["core.head"] - before["core.head"] == 19 * per_token
    assert model.compute_report()["saved"]["net"] == 0.0


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"modules_to_save": ["lm_head"]}, "merge_and_unload"),
        ({"trainable_token_indices": [3, 5]}, "merge_and_unload"),
        ({"target_modules": ["embed_tokens", "lm_head"], "ensure_weight_tying": True}, "ensure_weight_tying"),
    ],
)
def test_what_nothing_merges_is_refused(changes, wanted, make_backbone, tmp_path):
    backbone = make_backbone("llama", tie_word_embeddings=True)
    peft.get_peft_model(backbone, config(**changes))
    with pytest.raises(UsageError, match=wanted):
        AdaptiveModel.build(backbone, "dense").save_pretrained(tmp_path / "model")


def test_a_wrapped_backbone_is_refused_with_the_way_in(make_backbone):
    wrapped = peft.get_peft_model(make_backbone("llama"), config())
    with pytest.raises(UsageError, match=r"PeftModelForCausalLM.*get_base_model\(\)"):
        AdaptiveModel.build(wrapped, "gateskip")
    assert AdaptiveModel.build(wrapped.get_base_model(), "gateskip").spec.name == "gateskip"


def test_a_peft_model_around_writes_with_it(make_backbone, random_text):
    model = AdaptiveModel.build(make_backbone("llama"), "random_skip", seed=1).eval()
    model.saving = 0.3
    wanted = model.generate(random_text(1, 9), max_new_tokens=4)
    around = peft.get_peft_model(model, config()).eval()
    assert torch.equal(around.generate(input_ids=random_text(1, 9), max_new_tokens=4), wanted)  # B is zero at first


@pytest.fixture
def trained(trainer_of, tmp_path):
    def train(model, **arguments):
        settings = {"max_steps": 4, "gradient_accumulation_steps": 1, "save_strategy": "steps", "save_steps": 2}
        trainer_of(model, [AdaptiveCallback()], **settings, learning_rate=1e-2).train(**arguments)
        return tmp_path / "out" / "checkpoint-4"

    return train


def changed(model, before):
    """Names of parameters that training changed, by what they belong to."""
    names = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
    return {"adapters" if "lora" in name else "method" if "method." in name else "backbone" for name in names}


def test_trainer_trains_adapters_and_the_method(adapted, trained, random_text):
    """The backbone's own weights stay, checkpoints are models, and training goes on from them to the same end."""
    model = adapted(False, "gateskip")
    before = deepcopy(model.state_dict())
    checkpoint = trained(model)
    assert changed(model, before) == {"adapters", "method"}
    loaded = AdaptiveModel.from_pretrained(checkpoint)
    with torch.no_grad():
        torch.testing.assert_close(
            loaded(random_text(2, 9)).logits, model.eval()(random_text(2, 9)).logits, atol=1e-4, rtol=1e-4
        )
    again = adapted(False, "gateskip")
    trained(again, resume_from_checkpoint=str(checkpoint.parent / "checkpoint-2"))
    for (name, one), other in zip(model.named_parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(other, one, atol=1e-6, rtol=0, msg=name)


def test_trainer_with_a_peft_model_around(make_backbone, trained, random_text):
    """What peft froze is refused until it is asked for; peft's checkpoints hold adapters alone."""
    model = AdaptiveModel.build(make_backbone("llama"), "gateskip", seed=1)
    around = peft.get_peft_model(model, config())
    with pytest.raises(UsageError, match=r"frozen.*model\.method\.requires_grad_\(True\)"):
        trained(around)
    model.method.requires_grad_(True)
    before = deepcopy(model.state_dict())
    checkpoint = trained(around)
    assert changed(model, before) == {"adapters", "method"}
    loaded = AdaptiveModel.from_pretrained(checkpoint)
    with torch.no_grad():
        wanted = model.eval()(random_text(2, 9)).logits
        torch.testing.assert_close(loaded(random_text(2, 9)).logits, wanted, atol=1e-4, rtol=1e-4)
    with pytest.raises(UsageError, match=r"get_peft_model\(backbone, config\)"):
        trained(around, resume_from_checkpoint=str(checkpoint.parent / "checkpoint-2"))
