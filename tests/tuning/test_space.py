import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_bench import registry
from adaptive_bench.config_file import load_config
from adaptive_bench.errors import UsageError
from adaptive_bench.method import SearchRange, method_class
from adaptive_bench.spec import MethodSpec
from adaptive_bench.tuning.refusals import Refusals, spread
from adaptive_bench.tuning.space import Space, check_owned

GATESKIP = MethodSpec("gateskip")


@pytest.mark.parametrize("text", ["log:1e-3:1", "linear:0:0.5", "int:1:4", "choice:l1|l2"])
def test_a_range_reads_back_as_it_is_written(text):
    parsed = SearchRange.parse(text)
    assert SearchRange.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    "text", ["", "log", "log:0:1", "log:1:0.1", "linear:a:b", "int:1:2.5", "choice:a", "log:1:inf"]
)
def test_a_range_that_is_none_is_refused(text):
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
        ("train.steps=int:1:2", "Rates"),
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


def _spread(spec, param):
    space = Space.of(spec, [param])
    refused = Refusals(space, load_config("smoke", {"methods": str(spec)}))
    (name,) = space.ranges
    return [space.text(point)[name] for point in spread(space, refused, 4)]


def test_points_that_cover_a_space_are_never_the_method_as_it_is():
    """The middle of the range of FREE's weight is its default."""
    free = MethodSpec("free")
    assert _spread(free, "distillation_weight=linear:0:1") == ["0.25", "0.75", "0.125", "0.625"]
    assert _spread(free, "train.weight_decay=linear:0:1") == ["0.5", "0.25", "0.75", "0.125"]
    assert _spread(GATESKIP, "stride=int:1:2") == ["2"]  # there is no other
