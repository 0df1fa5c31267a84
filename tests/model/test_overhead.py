"""What a method adds, against counting by hand: H = 32, L = 4, V = 97 on the tiny Llama."""

import pytest
from overhead import measure_overhead

H, L, V = 32, 4, 97


@pytest.mark.parametrize(
    ("spec", "parameters", "decision_macs"),
    [
        ("dense", 0, 0),
        ("random_skip", 0, 0),
        ("gateskip", 2 * L * (H * H + H), 2 * L * H * H),
        ("gateskip[shape=scalar]", 2 * L * (H + 1), 2 * L * H),
        ("gateskip[sharing=shared]@paper", 2 * (H * H + H), 2 * L * H * H),
        ("gateskip[architecture=mlp]", 2 * L * (4 * H * H + 3 * H), 2 * L * 4 * H * H),
        ("mod", 2 * (H + 1), 2 * H),
        ("mod@paper", 2 * (H + 1 + H * H // 2 + H // 2 + H // 2 + 1), 2 * (H + H * H // 2 + H // 2)),
        ("router_tuned_mod", 2 * (H + 1), 2 * H),
        ("skiplayer", L * 2 * (H + 1), L * 2 * H),
        ("skipgpt", 2 * L * 2 * (H + 1), 2 * L * 2 * H),
        ("informed_routing[substitute=none]", 2 * L * (16 * (H + 1) + 2 * 17), 2 * L * 16 * (H + 2)),
        ("flexidepth", L // 2 * (2 * 2 * H + 2 + H + 3 * 3 * H), L // 2 * (2 * 2 * H + H)),
        ("prompt_router", L * 2 * (H + 1), 0),
        ("prompt_router[labels=search]", L * (128 * (H + 1) + 2 * 129), 0),
        ("d_llm", 2 * (8 * (H + 1) + 8 + 2 * 9), 2 * (8 * H + 16)),
        ("dash_halting", 0, 0),
        ("calm", 0, (L - 1) * H * V),
        ("calm[min_exit=2]", 0, (L - 2) * H * V),
        ("free", 0, H * V),
        ("layerskip", 0, 0),
    ],
)
def test_parameters_and_cost_of_deciding(make_model, make_backbone, spec, parameters, decision_macs):
    backbone = make_backbone("llama")
    found = measure_overhead(make_model(spec, backbone=backbone))
    assert found.parameters == parameters
    assert found.parameter_bytes == 4 * parameters
    assert found.backbone_parameters == sum(parameter.numel() for parameter in backbone.parameters())
    assert found.decision_macs == pytest.approx(decision_macs)
    assert found.dense_macs > H * V


def test_cost_of_what_skipped_tokens_get(make_model, make_backbone):
    """Where the dial lets everybody skip: a forecaster per branch, an adapter per routed layer; nothing without one."""
    wanted = {"informed_routing": 2 * L * 2 * H * 100, "flexidepth": L // 2 * 3 * H * 3, "skipgpt": 0}
    for spec, macs in wanted.items():
        found = measure_overhead(make_model(spec, backbone=make_backbone("llama")))
        assert found.adapter_macs == pytest.approx(macs)
