import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.errors import UsageError
from adaptive_bench.spec import SEMANTICS, MethodSpec, parse_specs

NAMES = st.from_regex(r"[A-Za-z0-9_\-]+", fullmatch=True)
VALUES = st.text(st.characters(exclude_characters="[],=", exclude_categories=["Z", "C"]), min_size=1)
SPECS = st.builds(
    MethodSpec,
    NAMES,
    st.dictionaries(VALUES, VALUES, max_size=4).map(lambda params: tuple(params.items())),
    st.sampled_from(SEMANTICS),
)


@given(st.lists(SPECS, min_size=1, max_size=5, unique=True))
def test_a_list_of_specs_survives_being_written_and_read(specs):
    assert parse_specs(",".join(map(str, specs))) == [MethodSpec.parse(str(spec)) for spec in specs] == specs


def test_parameter_order_does_not_make_another_spec():
    assert MethodSpec.parse("gateskip[b=2, a=1]") == MethodSpec.parse("gateskip[a=1,b=2]")
    assert str(MethodSpec.parse("gateskip[b=2,a=1]")) == "gateskip[a=1,b=2]"
    assert str(MethodSpec.parse("mod@bench")) == "mod"
    assert str(MethodSpec.parse("mod@paper")) == "mod@paper"
    assert MethodSpec("mod", {"b": 2, "a": "1"}) == MethodSpec.parse("mod[a=1,b=2]")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mod,dense,mod@bench", "'mod' once"),
        ("mod,,dense", "comma"),
        ("gateskip[a=1,,b=2]", "comma"),
        (" , ", "At least one method"),
    ],
)
def test_a_list_of_specs_has_every_one_once_and_none_that_is_empty(text, said):
    with pytest.raises(UsageError, match=said) as caught:
        parse_specs(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "received"),
    [
        ("gate skip", "gate skip"),
        ("gateskip[gate]", "gate"),
        ("gateskip[gate=]", "gate="),
        ("static_depth[layers=1,3]", "join several values by a plus, 1+3"),
        ("gateskip[a=1,a=2]", "'a' twice"),
    ],
)
def test_a_malformed_spec_is_named_in_the_error(text, received):
    with pytest.raises(UsageError, match=r"spec|Semantics") as caught:
        MethodSpec.parse(text)
    assert received in str(caught.value)


def test_a_spec_is_made_of_a_name_and_parameters_each_once():
    with pytest.raises(UsageError, match="name in a method spec"):
        MethodSpec("a[b=1]")
    with pytest.raises(UsageError, match="A spec parameter is given once, got 'shape' twice"):
        MethodSpec("gateskip", (("shape", "a"), ("shape", "b")))
