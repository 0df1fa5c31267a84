from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_bench import registry
from adaptive_bench.config import load_config
from adaptive_bench.errors import UsageError
from adaptive_bench.method import SearchRange, method_class, training_spec
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import canonical
from adaptive_bench.testing.suite import method_specs
from adaptive_bench.tuning.space import Space, check_owned

GATESKIP = MethodSpec("gateskip")


def test_a_range_reads_back_as_it_is_written_and_what_is_none_is_refused():
    for text in ("log:1e-3:1", "linear:0:0.5", "int:1:4", "choice:l1|l2"):
        parsed = SearchRange.parse(text)
        assert SearchRange.parse(str(parsed)) == parsed
    for text in ("log", "log:0:1", "log:1:0.1", "linear:a:b", "int:1:2.5", "choice:a", "log:1:inf"):
        with pytest.raises(UsageError):
            SearchRange.parse(text)


@pytest.mark.parametrize("name", registry.names("methods"))
def test_the_space_a_method_publishes_is_one_it_accepts(name):
    published = method_class(MethodSpec(name)).Config.search_space
    assert all(one.source for one in published.values())
    if published:
        assert Space.of(MethodSpec(name), []).ranges == dict(sorted(published.items()))


@settings(deadline=None)  # a machine may be busy
@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=3, max_size=3))
def test_every_point_lies_in_the_ranges(shares):
    space = Space.of(GATESKIP, ["sparsity_weight=log:1e-3:1", "stride=int:1:3", "loss=choice:l1|l2"])
    point = space.at(shares)
    assert point["loss"] in ("l1", "l2") and point["stride"] in (1, 2, 3)
    assert 1e-3 <= point["sparsity_weight"] <= 1


@pytest.mark.parametrize(
    ("param", "said"),
    [
        ("sparsity_weight", "NAME=RANGE"),
        ("sparsty_weight=log:1:2", "sparsity_weight"),
        ("sparsity_weight=linear:-1:1", "sparsity_weight"),
        ("train.batch_size=int:1:2", "Rates"),
        ("train.learning_rate=linear:0:1", "learning_rate"),
        ("mod.every=int:1:2", "No method of the study"),
    ],
)
def test_what_cannot_be_tuned_is_refused(param, said):
    with pytest.raises(UsageError, match=said):
        check_owned([GATESKIP], [param])
        Space.of(GATESKIP, [param])


def test_a_fixed_parameter_is_not_tuned():
    with pytest.raises(UsageError, match="either fixed or tuned"):
        Space.of(MethodSpec.parse("gateskip[sparsity_weight=0.5]"), ["sparsity_weight=log:1e-3:1"])
    with pytest.raises(UsageError, match="nothing to tune"):
        Space.of(MethodSpec.parse("skiplayer[density_weight=0.5,temperature=1]"), [])
    with pytest.raises(UsageError, match="never trained"):
        Space.of(MethodSpec("base"), ["train.learning_rate=log:1e-4:1e-2"])


def test_values_go_into_the_spec_and_the_recipe():
    space = Space.of(
        MethodSpec.parse("gateskip[shape=scalar]"),
        ["sparsity_weight=log:1e-3:1", "train.learning_rate=log:1e-4:1e-2", "train.method_learning_rate=log:1e-3:1"],
    )
    values = {"sparsity_weight": "0.1", "train.learning_rate": "0.002", "train.method_learning_rate": "0.05"}
    trial = space.config_with(values, load_config("smoke", {"methods": "gateskip[shape=scalar]"}))
    assert trial.methods == ("gateskip[shape=scalar,sparsity_weight=0.1]",)
    assert trial.train.learning_rate == 0.002
    assert trial.train.method_learning_rates == {"gateskip[shape=scalar,sparsity_weight=0.1]": 0.05}


def on_nano(text, values, tried=None, params=()):
    """Why values are refused on the embedded model, which has six layers."""
    config = load_config("smoke", {"methods": text, "model": "nano"})
    return Space.of(MethodSpec.parse(text), params).refusal(values, tried or {0: {}}, config)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("gateskip", {"shape": "vector", "stride": "1"}),
        ("gateskip[loss=l1]", {"sparsity_weight": "0.1"}),
        ("calm[min_exit=4]", {"exit_interval": "1"}),
        ("router_tuned_mod", {"layers": "3"}),
        ("layerskip", {"rotation": "5"}),
    ],
)
def test_what_comes_to_the_defaults_is_no_trial(text, values):
    assert "trial 0, its defaults" in on_nano(text, values)
    earlier = {0: {}, 7: {"min_exit": "4", "exit_interval": "2"}}
    assert "trial 7" in on_nano("calm", {"min_exit": "4", "exit_interval": "3"}, earlier)
    assert on_nano("calm", {"min_exit": "3", "exit_interval": "2"}, earlier) is None


def test_a_rate_that_the_method_has_already_is_no_trial():
    space = Space.of(GATESKIP, ["train.method_learning_rate=log:1e-3:1"])
    config = load_config("smoke", {"methods": "gateskip", "train": {"method_learning_rates": {"gateskip": 0.05}}})
    assert "trial 0" in space.refusal({"train.method_learning_rate": "0.05"}, {0: {}}, config)
    assert space.refusal({"train.method_learning_rate": "0.01"}, {0: {}}, config) is None
    assert "100" in space.refusal({"train.method_learning_rate": "200"}, {0: {}}, config)


def test_what_the_model_cannot_have_is_refused_with_the_reason_and_counts_end_there():
    assert "6 layers" in (reason := on_nano("free", {"shallow_layers": "6"})) or "< 6" in reason
    for text, name, expected in (("free", "shallow_layers", "int:2:5"), ("gateskip", "stride", "int:1:2")):
        config = load_config("smoke", {"methods": text, "model": "nano"})
        assert str(Space.of(MethodSpec.parse(text), []).fitted(config).ranges[name]) == expected


def test_trials_of_early_exits_share_one_training():
    space = Space.of(MethodSpec("calm"), [])
    specs = {space.spec_with(space.text(point)) for point in space.grid()}
    assert len(specs) == 128 and {training_spec(spec) for spec in specs} == {MethodSpec("calm")}


@pytest.mark.parametrize("name", registry.names("methods"))
def test_variants_of_a_method_come_to_something_else_than_its_defaults(name):
    """What a config comes to leaves out nothing that a variant changes."""
    come_to = [canonical(method_class(spec).parse_config(spec).on_model(6)) for spec in method_specs(name)[1:]]
    assert len({*come_to}) == len(come_to)


def _covering(spec, param):
    space = Space.of(spec, [param])
    (name,) = space.ranges
    points = space.accepted(load_config("smoke", {"methods": str(spec)}), {0: {}})
    return [space.text(point)[name] for point in islice(points, 4)]


def test_points_that_cover_a_space_are_never_the_method_as_it_is():
    """The middle of the range of FREE's weight is its default."""
    free = MethodSpec("free")
    assert _covering(free, "distillation_weight=linear:0:1") == ["0.25", "0.75", "0.125", "0.625"]
    assert _covering(free, "train.weight_decay=linear:0:1") == ["0.5", "0.25", "0.75", "0.125"]
    assert _covering(GATESKIP, "stride=int:1:2") == ["2"]  # there is no other
