"""Spared sites run for every token and nobody is asked there; the first token of a text runs everything."""

from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_bench import registry
from adaptive_bench.backbone import Site
from adaptive_bench.errors import UsageError
from adaptive_bench.method import MethodSpec, every_branch, method_class
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.interventions import collect_decisions, standing_between

SPARED = frozenset({Site(0, "mlp"), Site(2, "attention")})
UNTOUCHED = ("dense", "static_depth", "layerskip", "calm", "free", "dash_halting", "prompt_router")
SPECS = [name for name in registry.names("methods") if name not in (*UNTOUCHED, "base")]
SPECS += ["gateskip[shape=scalar]", "gateskip[skip_unit=layer]", "gateskip[compensate=scale]", "mod[every=1]"]
SPECS += ["d_llm[start_layer=0]", "random_skip[compensate=scale]", "random_skip[kv=evict,trained=true]"]
# Methods that decide for both branches of a layer: it is spared whole.
BY_LAYER = ("mod", "skiplayer", "d_llm", "flexidepth", "gateskip[skip_unit=layer]")


def text(random_text, rows=6, length=24, seed=99):
    ids = random_text(rows, length, seed)
    mask = torch.ones_like(ids)
    mask[1, :5] = 0  # padded on the left, so that its first token is not the row's
    return {"input_ids": ids, "attention_mask": mask, "continuation_mask": torch.arange(length).expand_as(ids) >= 12}


def spared_model(spec, backbone, random_text, spared=SPARED, keep_first=True):
    model = AdaptiveModel.build(backbone, spec, seed=1, spared=spared, keep_first=keep_first).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.method.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    if model.needs_calibration:
        model.calibrate([text(random_text, 12)], [min(share, model.method.max_saving) for share in (0.15, 0.3, 1.0)])
    return model


@contextmanager
def recording(method, listen):
    method.listeners.append(listen)
    yield
    method.listeners.remove(listen)


def left_out(spec):
    """The spared branches: whole layers for methods that decide for both at once."""
    return every_branch(site.layer for site in SPARED) if spec.startswith(BY_LAYER) else SPARED


@pytest.fixture(scope="module")
def model_of(make_backbone, random_text):
    models = {}

    def get(spec):
        if spec not in models:
            models[spec] = spared_model(spec, make_backbone("llama"), random_text)
        return models[spec]

    return get


@pytest.mark.parametrize("spec", SPECS)
@torch.no_grad()
def test_nothing_is_skipped_where_it_is_spared(spec, model_of, random_text):
    """At the end of the dial everything that may skip does, but nothing there, and no first token anywhere."""
    model, batch = model_of(spec), text(random_text, seed=5)
    spared, valid = left_out(spec), batch["attention_mask"].bool()
    assert model.method.spared == spared
    first = valid & (valid.cumsum(dim=1) == 1)
    kept = {}

    def listen(view, decision):
        sites = [view.site] if view.site.branch != "layer" else every_branch([view.site.layer])
        for site in sites:
            kept[site] = valid if decision.keep is None else decision.keep & valid

    for saving in (model.method.max_saving, 0.5 * model.method.max_saving):
        model.dial = model.method.checked_dial(saving)
        for executor in ("packed", "masked"):
            model.executor = executor
            with recording(model.method, listen):
                model(**batch)
            skipped = {site for site, keep in kept.items() if (valid & ~keep).any()}
            assert kept.keys() == every_branch(range(4)) and skipped <= model.method.skippable_sites
            assert not skipped & spared and all(keep[first].all() for keep in kept.values())
            assert skipped or spec == "gated" or not saving
            booked = model.compute_report()["sites"]
            assert all(booked[site.number]["executed"] == 1.0 for site in spared)
    model.executor = None


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec != "gated"])
@torch.no_grad()
def test_executors_and_cached_decoding_agree(spec, model_of, random_text):
    model, batch = model_of(spec), text(random_text, seed=7)
    model.dial = model.method.checked_dial(0.7 * model.method.max_saving)
    ids, valid, prompt = batch["input_ids"], batch["attention_mask"], 12
    real = valid.bool()
    model.executor = "masked"
    masked = model(**batch).logits
    model.executor = "packed"
    torch.testing.assert_close(model(**batch).logits[real], masked[real], atol=1e-4, rtol=0)
    output = model(ids[:, :prompt], valid[:, :prompt], use_cache=True)
    parts = [output.logits]
    for place in range(prompt, ids.shape[1]):
        output = model(ids[:, place : place + 1], past_key_values=output.past_key_values, use_cache=True)
        parts.append(output.logits)
    torch.testing.assert_close(torch.cat(parts, dim=1)[real], masked[real], atol=1e-4, rtol=0)
    model.executor = None


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec != "gated"])
@torch.no_grad()
def test_savings_are_shares_of_all_token_branches(spec, model_of, random_text):
    """What is asked for is saved, at the sites that are left, whatever is spared: within what first tokens keep."""
    model, batch = model_of(spec), text(random_text, 12)
    eligible, whole = model.method.eligible_sites, model.method.max_saved_tokens
    share = len(eligible - left_out(spec)) / len(eligible)
    assert model.method.max_saving == pytest.approx(whole * share)
    wanted = min(0.15, 0.8 * model.method.max_saving)
    if model.needs_calibration:
        model.calibrate([batch], [wanted])
    model.saving = wanted
    assert model.saving == pytest.approx(wanted, abs=0.02)
    model(**batch, phase="decode")
    saved = model.compute_report()["saved"]["tokens"]
    assert wanted - 0.04 <= saved <= wanted + 0.03


@pytest.mark.parametrize("spec", SPECS)
def test_training_leaves_gates_of_spared_sites_alone(spec, make_backbone, random_text, training_batch):
    trained = str(
        method_class(MethodSpec.parse(spec)).training_spec(
            method_class(MethodSpec.parse(spec)).parse_config(MethodSpec.parse(spec)), MethodSpec.parse(spec)
        )
    )
    model = spared_model(trained, make_backbone("llama"), random_text).train()
    model.method.target = 0.2
    model.begin_step(9, 10)
    ids, mask, labels = training_batch
    kept = []
    with recording(model.method, lambda view, decision: kept.append((view.site, decision))):
        model(ids, mask, labels=labels).loss.backward()
    gates = getattr(model.method, "gates", getattr(model.method, "routers", None))
    for site, decision in kept:
        if model.method.is_spared(site):
            assert decision.keep is None and decision.scale is None
        if decision.keep is not None:
            assert decision.keep[:, 0].all()
    if gates is None:
        return
    names = (
        {str(site.number) for site in model.method.spared}
        if len(gates) == 8
        else {
            str(site.layer) for site in model.method.spared if spec != "router_tuned_mod" or site.branch == "attention"
        }
    )
    for name, gate in gates.named_children():
        gradients = [parameter.grad for parameter in gate.parameters()]
        if name in names:
            assert all(gradient is None for gradient in gradients)
        else:
            assert all(gradient is not None for gradient in gradients)


@pytest.mark.parametrize("spec", [*SPECS, "static_depth"])
@torch.no_grad()
def test_a_saved_model_spares_the_same(spec, make_backbone, random_text, tmp_path):
    model, batch = spared_model(spec, make_backbone("llama"), random_text), text(random_text, seed=3)
    model.dial = model.method.checked_dial(0.5 * model.method.max_saving)
    model.save_pretrained(tmp_path)
    loaded = AdaptiveModel.from_pretrained(tmp_path)
    assert (loaded.method.spared, loaded.method.keep_first) == (model.method.spared, model.method.keep_first)
    assert loaded.dial == model.dial
    torch.testing.assert_close(loaded(**batch).logits, model(**batch).logits, atol=0, rtol=0)


@pytest.mark.parametrize("spec", UNTOUCHED)
def test_exits_and_sets_of_layers_are_left_as_they_are(spec, make_backbone):
    method = AdaptiveModel.build(make_backbone("llama"), spec, spared=SPARED, keep_first=True).method
    assert not method.spared and not method.keep_first and method.skippable_sites == method.eligible_sites
    assert method.max_saving == method.max_saved_tokens


def test_sites_are_those_of_the_model_and_some_are_left(make_backbone):
    with pytest.raises(UsageError, match="attention and MLP of layers 0 to 3, got Site"):
        AdaptiveModel.build(make_backbone("llama"), "gateskip", spared={Site(4, "mlp")})
    with pytest.raises(UsageError, match="got all of them spared"):
        AdaptiveModel.build(make_backbone("llama"), "mod", spared={Site(1, "mlp"), Site(3, "attention")})


@given(
    spared=st.sets(st.sampled_from(sorted(every_branch(range(4)))), max_size=5),
    spec=st.sampled_from(("random_skip", "position_skip", "gateskip", "skiplayer")),
    keep_first=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_targets_of_any_set_add_up(spared, spec, keep_first, make_backbone):
    """What the sites that are left are told to skip is the target of all token-branches: the dense model's share."""
    if spec == "skiplayer" and len({site.layer for site in spared}) == 4:
        return
    method = AdaptiveModel.build(make_backbone("llama"), spec, spared=spared, keep_first=keep_first).method
    method.target = 0.1
    assert method.target * len(method.skippable_sites) == pytest.approx(0.1 * 8)
    assert method.target_of_all == 0.1


@pytest.mark.parametrize("spec", ["gateskip", "skiplayer", "d_llm[start_layer=0]", "position_skip"])
@torch.no_grad()
def test_other_tokens_decisions_spare_the_same(spec, model_of, random_text):
    model, batch = model_of(spec), text(random_text, seed=11)
    model.dial = model.method.checked_dial(0.8 * model.method.max_saving)
    bank = collect_decisions(model, [text(random_text, 12)])
    valid = batch["attention_mask"].bool()
    first = valid & (valid.cumsum(dim=1) == 1)
    kept = []

    def listen(view, decision):
        kept.append((view.site, valid if decision.keep is None else decision.keep))

    with standing_between(model, bank), recording(model.method, listen):
        model(**batch)
    assert len(kept) == (4 if model.method.unit == "layer" else 8)
    assert all(keep[first].all() for _, keep in kept)
    assert all(keep[valid].all() for site, keep in kept if model.method.is_spared(site))
    assert not all(keep[valid].all() for _, keep in kept)
