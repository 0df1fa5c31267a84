"""Where a method may skip, in words, and every method's words."""

import pytest
from covering import slow

from adaptive_bench.method import Site, described, every_branch
from adaptive_bench.testing.checks.dial_effect import eligible
from adaptive_bench.testing.suite import Suite, method_specs


@pytest.mark.parametrize(
    ("sites", "text"),
    [
        (every_branch(range(8)), "layers 0-7"),
        (every_branch([3]), "layer 3"),
        (every_branch([1, 3, 5]), "layers 1, 3, 5"),
        (every_branch([0, 1, 4, 5, 6]), "layers 0, 1, 4-6"),
        ({Site(layer, "attention") for layer in (3, 4, 5)}, "attention of layers 3-5"),
        ({Site(0, "mlp"), *every_branch([1, 2])}, "attention of layers 1, 2, MLP of layers 0-2"),
        ((), "none"),
    ],
)
def test_sites_are_told_in_few_words(sites, text):
    assert described(sites) == text


WHERE = {
    "none": ("dense", "gated"),
    "layers 0-3": ("random_skip", "position_skip", "static_depth", "gateskip", "skiplayer", "prompt_router"),
    "layers 1-3": ("layerskip", "calm"),
    "layers 1, 3": ("gateskip[stride=2]", "mod"),
    "layers 2, 3": ("flexidepth", "d_llm", "dash_halting", "calm[confidence=state]", "free"),
    "layer 3": ("mod[every=4]", "flexidepth[layers=1]"),
    "MLP of layers 0-3": ("gateskip[skip_modules=mlp]",),
    "attention of layers 1, 2": ("router_tuned_mod",),
}


@pytest.mark.parametrize(("text", "spec"), [(text, spec) for text, specs in WHERE.items() for spec in specs])
def test_every_method_says_where_it_may_skip(make_model, spec, text):
    assert described(make_model(spec).method.eligible_sites) == text


@pytest.mark.parametrize(
    "name", ["mod", "static_depth", *slow("gateskip", "calm", "free", "router_tuned_mod", "skiplayer")]
)
def test_and_skips_nowhere_else(name):
    """The variants too, that other tests of conformance leave out."""
    for spec in method_specs(name):
        result = Suite(spec, "llama").result(eligible)
        assert result.status == "passed", result.message
