"""Every variant of every method passes every check, each on one family, and none does what another does."""

import hashlib
import itertools

import pytest
import torch

from adaptive_bench import registry
from adaptive_bench.capabilities import stored_matrix
from adaptive_bench.method import method_class
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.testing.subject import FAMILIES, SHARES, Subject, calibrate, random_text, trained_model
from adaptive_bench.testing.suite import Suite, method_specs

pytestmark = pytest.mark.slow
METHODS = [name for name in registry.names("methods") if registry.origin("methods", name).startswith("adaptive-bench ")]
SPECS = [spec for name in METHODS for spec in method_specs(name)]
VARIANTS = [spec for spec in SPECS if spec.params]
SHARED = {}


@pytest.mark.parametrize(("spec", "number"), [(spec, number) for number, spec in enumerate(VARIANTS)], ids=str)
def test_every_check_passes(spec, number):
    results = Suite(spec, FAMILIES[number % len(FAMILIES)], shared=SHARED).results()
    assert [result for result in results if result.status == "failed"] == []


def test_the_matrix_is_stored_for_every_spec():
    stored = {spec for name in METHODS for spec in stored_matrix(name)}
    assert stored == {str(spec) for spec in SPECS}


# Parameters of which two values may have the same effect on a tiny model: how a few layers are picked.
MAY_AGREE = {"rule", "search_budget"}


def says_the_same(one, other):
    """Whether two specs differ in semantics alone, or in parameters whose default `None` leaves the choice open."""
    mine, theirs = ({key: value for key, value in spec.params if key not in MAY_AGREE} for spec in (one, other))
    fields = method_class(one).Config.model_fields
    return (
        one.name == other.name
        and not any(mine[key] != theirs[key] for key in mine.keys() & theirs.keys())
        and all(fields[key].default is None for key in mine.keys() ^ theirs.keys())
    )


@torch.no_grad()
def behaviour(model, dials):
    """Digest of all decisions and logits at some dial values, bit for bit."""
    text, digest = random_text((24, 24, 17, 24), prompt=6), hashlib.sha256()
    for model.dial in dials:
        with recorded_decisions(model.method) as decisions:
            logits = model(**text.arguments).logits[text.valid]
        tensors = [part for _, one in decisions for part in (one.keep, one.scale, one.input_scale)]
        digest.update(f"{[site for site, _ in decisions]}".encode())
        for tensor in (*tensors, logits):
            digest.update(b"none" if tensor is None else tensor.double().numpy().tobytes())
    return digest.hexdigest()


def trained_behaviour(spec, folder):
    """After a few training steps, which also shows parameters that matter only in training."""
    model = trained_model(Subject(spec, "llama"), folder)
    calibrate(model)
    dials = [model.method.checked_dial(share * model.method.max_saved_tokens) for share in SHARES]
    if model.method.solves_dial:  # a parameter that shifts the dial changes nothing at equal savings
        dials += map(model.method.dial.at, (0.2, 0.4, 0.6, 0.8))
    return behaviour(model, dials)


def test_no_parameter_changes_nothing(tmp_path):
    """Specs that agree, and defaults spelled out, may behave alike; the paper's rule of GateSkip and MoD is its own."""
    behaviours = {spec: trained_behaviour(spec, tmp_path / str(number)) for number, spec in enumerate(SPECS)}
    pairs = [pair for pair in itertools.combinations(SPECS, 2) if behaviours[pair[0]] == behaviours[pair[1]]]
    assert [pair for pair in pairs if not says_the_same(*pair)] == []
    together = {str(spec) for pair in pairs for spec in pair}
    assert {"dense", "dense@paper", "gateskip[kv=recompute]"} <= together
    assert not {"gateskip@paper", "mod@paper", "router_tuned_mod@paper", "gateskip[loss=l1]"} & together
