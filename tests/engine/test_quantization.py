"""Quantized weights: the same decisions and MACs, fewer bytes, and kernels that are called for kept rows alone."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from adaptive_bench.backbone import weights as quantization
from adaptive_bench.backbone.weights import stored_bytes
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.model.compression import quantize
from adaptive_bench.testing.subject import random_text
from adaptive_bench.validation import QUANTIZED

pytest.importorskip("torchao")
pytest.importorskip("bitsandbytes")
pytest.importorskip("optimum.quanto")

WIDE = {"hidden_size": 256, "intermediate_size": 320, "num_hidden_layers": 2}  # groups and blocks of several kinds
CALIBRATION = random_text((30,) * 8, seed=9)


@pytest.fixture(scope="module")
def pair(make_backbone, make_model):
    """`pair(how, spec, family)`: a model as it is and the same one quantized, neither calibrated by the other."""

    def make(how, spec="random_skip", family="llama", **changes):
        plain = make_backbone(family, **changes)
        other = deepcopy(plain)
        return make_model(spec, family, backbone=plain), quantize(make_model(spec, family, backbone=other), how)

    return make


def linears(model):
    return [module for module in model.backbone.decoder.layers.modules() if isinstance(module, nn.Linear)]


TEXT = random_text((20, 13, 1), seed=3)


def test_stored_bytes_by_hand():
    """Codes, and a scale (and shift) in fp32 for each output, or group of 128 inputs, or block of 64.

    torchao keeps a zero point of a byte for each output as well.
    """

    def bytes_of(how):
        layers = nn.ModuleList([nn.Linear(256, 64, bias=False)])
        quantization.quantize_layers(layers, how)
        return stored_bytes(layers[0])

    assert stored_bytes(nn.Linear(256, 64)) == 4 * 256 * 64
    assert bytes_of("int8") == 256 * 64 + 5 * 64
    assert bytes_of("int4") == 256 * 64 // 2 + 2 * 4 * 64 * 2
    blocks = 256 * 64 // 64
    assert bytes_of("nf4") == 256 * 64 // 2 + blocks + 4 * (blocks // 256) + 4  # and an offset


@pytest.mark.parametrize("shape", [(96, 256), (48, 48), (24, 40), (32, 320)])
@pytest.mark.parametrize(("how", "most"), [("int8", 0.01), ("int4", 0.12), ("nf4", 0.1)])
@torch.no_grad()
def test_weights_are_off_by_what_the_form_has_room_for(how, most, shape):
    """Of Gaussian weights, whether rows are multiples of a block of 64, or of a group, or not; a map by itself.

    Min-max of 128 of them spans 5.2 deviations in 15 steps, of which each is off by 1 / sqrt(12) in the mean: 0.1.
    """
    torch.manual_seed(1)
    layers = nn.ModuleList([nn.Linear(shape[1], shape[0], bias=False)])
    weight = layers[0].weight.copy_(torch.randn(shape)).clone()
    quantization.quantize_layers(layers, how)
    off = layers[0](torch.eye(shape[1])).t() - weight
    assert 0 < off.norm() / weight.norm() < most


@pytest.mark.parametrize("how", QUANTIZED)
@torch.no_grad()
def test_the_ledger_is_that_of_the_unquantized_model(pair, how):
    """Same decisions, so every MAC and every saving on tokens, core and net FLOPs is the same; bytes are not."""
    reports = []
    for model in pair(how):
        model.dial = model.method.dial_for(0.3)
        model(**TEXT.arguments)
        cache = model(TEXT.input_ids[:1, :8], use_cache=True).past_key_values
        for place in range(8, 16):  # the same tokens, whatever the model would write
            model(TEXT.input_ids[:1, place : place + 1], past_key_values=cache, use_cache=True)
        reports.append(model.compute_report())
    plain, small = reports
    assert small["macs"] == pytest.approx(plain["macs"], rel=1e-9)
    for axis in ("tokens", "core", "net", "executed"):
        assert small["saved"][axis] == pytest.approx(plain["saved"][axis], abs=1e-9) and plain["saved"][axis] != 0
    for phase in ("prefill", "decode"):
        assert small["counts"][phase]["weight_bytes"] < 0.9 * plain["counts"][phase]["weight_bytes"]


@pytest.mark.parametrize("spec", ["gateskip", "random_skip", "layerskip", "mod"])
@pytest.mark.parametrize("how", QUANTIZED)
@torch.inference_mode()
def test_packed_is_masked(pair, make_model, how, spec):
    """T-QZ3: no row depends on others; in inference mode, as evaluations run."""
    _, model = pair(how, spec)
    if model.needs_calibration:
        model.calibrate([CALIBRATION.arguments], [0.3])
    model.dial = model.method.dial_for(0.3)
    logits = []
    for executor in ("packed", "masked"):
        model.executor = executor
        logits.append(model(**TEXT.arguments).logits[TEXT.valid])
    assert model.compute_report()["saved"]["tokens"] > 0.1
    assert torch.allclose(*logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("how", QUANTIZED)
@torch.no_grad()
def test_logits_are_those_of_the_weights_brought_back(pair, how):
    """fp32 math with the weights as each map multiplies them, in a model of plain maps."""
    plain, small = pair(how, **WIDE)
    for model in (plain, small):
        model.dial = model.method.dial_for(0.3)
    before = plain(**TEXT.arguments).logits[TEXT.valid]
    for own, other in zip(linears(plain), linears(small), strict=True):
        given = other(torch.eye(own.in_features)) - (0 if other.bias is None else other.bias)
        own.weight.copy_(given.t())
    found, wanted = (model(**TEXT.arguments).logits[TEXT.valid] for model in (small, plain))
    assert torch.allclose(found, wanted, atol=1e-3, rtol=1e-4)
    assert not torch.allclose(found, before, atol=1e-2), "T-QZ5: it is another model"


@pytest.mark.parametrize("products", ["fixed", "measured"])
@pytest.mark.parametrize("how", QUANTIZED)
@torch.no_grad()
def test_decode_steps_take_no_other_form_of_a_quantized_product(pair, monkeypatch, how, products):
    """Transposed products are of plain weights."""
    monkeypatch.setenv("ADAPTIVE_BENCH_PRODUCTS", products)
    _, model = pair(how, **WIDE)
    model.dial, ids = model.method.dial_for(0.3), TEXT.input_ids[:1]
    whole = model(ids).logits[:, -4:]
    cache, found = model(ids[:, :-4], use_cache=True).past_key_values, []
    for place in range(ids.shape[1] - 4, ids.shape[1]):
        step = model(ids[:, place : place + 1], past_key_values=cache, use_cache=True)
        found.append(step.logits)
    assert torch.allclose(torch.cat(found, dim=1), whole, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("how", QUANTIZED)
@torch.no_grad()
def test_what_nobody_executes_calls_no_kernel(make_backbone, make_pattern, run_pattern, random_text, how):
    """T-QZ2."""
    backbone = deepcopy(make_backbone("llama"))
    pattern = make_pattern(2, 6, 4, kv="evict", share=1.0, scaled=False)
    pattern.keep[:, 2:4] = False  # neither attention nor MLP of layer 1 keeps anybody
    model = run_pattern(backbone, pattern)
    model.backbone.quantize(how)
    rows = {}

    def count(name):
        return lambda module, inputs: rows.setdefault(name, []).append(inputs[0].numel() // inputs[0].shape[-1])

    for name, module in model.backbone.decoder.layers.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(count(name))
    model(random_text(2, 6))
    assert not any(name.startswith("1.") for name in rows) and len(rows) == 3 * 7
    assert min(number for found in rows.values() for number in found) > 0


@pytest.mark.parametrize("how", QUANTIZED)
@torch.no_grad()
def test_only_the_maps_of_layers_are_quantized_and_calibration_is_forgotten(make_backbone, make_model, how):
    """T-QZ6."""
    model = make_model("gateskip", backbone=deepcopy(make_backbone("llama")))
    model.saving = 0.3
    maps = {id(module) for module in linears(model)}
    kept = {
        name: (value, value.clone())
        for name, value in model.named_parameters()
        if not any(f"{part}_proj" in name for part in ("q", "k", "v", "o", "gate", "up", "down"))
    }
    assert maps and any("method" in name for name in kept) and any("lm_head" in name for name in kept)
    quantize(model, how)
    now = dict(model.named_parameters())
    for name, (value, before) in kept.items():
        assert now[name] is value and torch.equal(value, before)
    with pytest.raises(UsageError, match="calibrate"):
        model.saving = 0.3
    model.calibrate([CALIBRATION.arguments], [0.3])
    model.saving = 0.3
    model(**TEXT.arguments)  # the calibration is not taken for that of other weights
    model(**TEXT.arguments)


def test_a_quantized_model_is_neither_saved_nor_quantized_again(pair, tmp_path):
    _, model = pair("int8")
    with pytest.raises(UsageError, match=r"quantized as int8\. Save it first"):
        model.save_pretrained(tmp_path / "model")
    with pytest.raises(UsageError, match="once"):
        quantize(model, "int8")


def test_a_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(quantization.importlib.util, "find_spec", lambda name: None)
    for how, library in {"int8": "torchao", "nf4": "bitsandbytes", "int4": "optimum-quanto"}.items():
        with pytest.raises(EnvironmentProblem, match=rf"{library}.*adaptive-bench\[quantize\]"):
            quantization.check_installed(how)
    quantization.check_installed("none")
