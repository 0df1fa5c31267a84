"""What a method's parameters say: settings without sense, and the trainings that specs share."""

import pytest

from adaptive_bench.errors import UsageError
from adaptive_bench.method import MethodSpec, starting_spec, training_spec


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("calm[min_exit=4]", "Lower min_exit"),
        ("calm[exit_interval=9,confidence=state]", "Lower min_exit"),
        ("d_llm[start_layer=4]", "got start_layer=4 with 4 layers"),
        ("dash_halting[start=0.8]", "got start=0.8, which is layer 3 of 4"),
        ("flexidepth[layers=5]", r"FlexiDepth routes 1 \.\. 4 of 4 layers, got layers=5"),
        ("free[shallow_layers=1]", "shallow_layers"),
        ("gateskip[rule=text]", "@paper"),
        ("gateskip[stride=5]", "stride"),
        ("gateskip[skip_unit=layer,skip_modules=mlp]", "skip_unit"),
        ("layerskip[curriculum=rotational,rotation=4]", "rotational"),
        ("layerskip[curriculum=rotational,rotation=2,exit_scale=0]", "rotational"),
        ("router_tuned_mod[layers=4]", "never the last"),
        ("static_depth[layers=1+9]", "from 0 to 3"),
        ("static_depth[layers=1+1]", "Name each once"),
        ("static_depth[layers=1,rule=bi]", "named or picked by a rule"),
        ("static_depth[branches=1]", "branches"),
        ("static_depth[layers=1,unit=branch]", "branches are named instead of layers"),
    ],
)
def test_settings_without_sense_are_refused(spec, said, make_model):
    with pytest.raises(UsageError, match=said):
        make_model(spec)


TRAININGS = {
    "dense": "dense",
    "dense@paper": "dense",
    "random_skip": "dense",
    "random_skip[kv=evict]@paper": "dense",
    "random_skip[kv=evict,trained=true]@paper": "random_skip[trained=true]",
    "random_skip[compensate=scale]": "dense",
    "random_skip[compensate=scale,kv=evict,trained=true]": "random_skip[trained=true]",
    "static_depth[compensate=scale]": "dense",
    "static_depth[compensate=scale,trained=true]": "static_depth[trained=true]",
    "gateskip@paper": "gateskip@paper",  # the released code drops and penalises others than ours
    "gateskip[kv=evict,rule=text,shape=scalar]@paper": "gateskip[rule=text,shape=scalar]@paper",
    "gateskip[rule=exact_share]@paper": "gateskip",
    "gateskip[kv=evict,shape=scalar]": "gateskip[shape=scalar]",
    "gateskip[shape=vector,budget_start=1.00]": "gateskip",
    "gateskip[compensate=scale,kv=evict]": "gateskip",
    "gateskip[compensate=scale]@paper": "gateskip@paper",
    "gateskip[budget_end=0.80]": "gateskip[budget_end=0.80]",  # the run sets another end where nobody does
    "router_tuned_mod@paper": "router_tuned_mod@paper",
    "mod[capacity=0.5]@paper": "mod[capacity=0.5,route_by=predictor]",
    "mod": "mod",
    "mod[route_by=router]": "mod",
    "mod@paper": "mod[route_by=predictor]",  # a predictor is trained where something reads it
    "mod[route_by=predictor]": "mod[route_by=predictor]",
    "mod[route_by=router]@paper": "mod",
    "calm[confidence=classifier,min_exit=2]": "calm[confidence=classifier]",
    "calm[confidence=state]": "calm",
    "calm[confidence=convergence,converged_at=0.9,exit_interval=4]": "calm[confidence=convergence,converged_at=0.9]",
}
STARTS = {
    "calm": None,
    "calm[confidence=classifier]": "calm",  # a second stage, on top of the exits' training
    "calm[confidence=convergence]": "calm",
    "gateskip": None,
    "gateskip[frozen=true]": "dense",  # a frozen backbone cannot learn the answer template
    "router_tuned_mod": "dense",
    "skipgpt": "dense",
}


def test_specs_that_differ_at_inference_only_are_trained_once():
    assert {spec: str(training_spec(MethodSpec.parse(spec))) for spec in TRAININGS} == TRAININGS


def test_what_a_training_starts_from():
    found = {spec: starting_spec(MethodSpec.parse(spec)) for spec in STARTS}
    assert found == {spec: start and MethodSpec(start) for spec, start in STARTS.items()}
