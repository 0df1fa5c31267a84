"""Hundreds of malformed inputs, generated: each is refused with one of our errors or marked, none gives a number.

Text is damaged as disks and editors do it (cut, a bit flipped, a part doubled or replaced), and JSON as programs of
other versions do it (a value replaced or left out).
"""

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_bench.config import load_config
from adaptive_bench.errors import AdaptiveBenchError
from adaptive_bench.method import method_class
from adaptive_bench.spec import MethodSpec

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def examples(count):
    """As many examples as said, always the same ones."""
    unhealthy = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=count, derandomize=True, deadline=None, database=None, suppress_health_check=unhealthy)


@st.composite
def damaged(draw, content):
    """Other bytes than these."""
    place = draw(st.integers(0, max(0, len(content) - 1)))
    kind = draw(st.sampled_from(["cut", "flipped", "doubled", "replaced", "zeroed", "other"]))
    if kind == "cut":
        return content[:place]
    if kind == "flipped":
        found = bytearray(content or b"\0")
        found[place] ^= 1 << draw(st.integers(0, 7))
        return bytes(found)
    if kind == "doubled":
        return content[:place] + content[max(0, place - 20) :]
    if kind == "replaced":
        return content[:place] + draw(st.binary(min_size=1, max_size=8)) + content[place + 3 :]
    if kind == "zeroed":
        return content[:place] + bytes(len(content) - place)
    return draw(st.binary(max_size=40))


@st.composite
def altered(draw, values):
    """The same JSON with one value replaced or left out, wherever it is."""
    if isinstance(values, dict) and values and draw(st.integers(0, 9)) > 0:
        key = draw(st.sampled_from(sorted(values)))
        if draw(st.integers(0, 4)) == 0:
            return {name: value for name, value in values.items() if name != key}
        return {**values, key: draw(altered(values[key]))}
    if isinstance(values, list) and values and draw(st.booleans()):
        place = draw(st.integers(0, len(values) - 1))
        return [*values[:place], draw(altered(values[place])), *values[place + 1 :]]
    return draw(JSON_VALUES)


def holds(call, *arguments):
    """What a call gives; `None` if it refused: with one of our errors, a code of the command line and a sentence of a
    sane length.
    """
    try:
        return call(*arguments)
    except AdaptiveBenchError as error:
        assert error.exit_code in (1, 2) and 20 < len(str(error)) < 5000 and "Traceback" not in str(error)
        return None


CONFIG = {
    "methods": ["dense", "gateskip[shape=scalar]"],
    "tasks": ["nano_math"],
    "seeds": 2,
    "levels": [0.0, 0.1],
    "match_on": "net",
    "out": "runs",
    "train": {"steps": 10, "batch_size": 4, "learning_rate": 0.001, "betas": [0.9, 0.95]},
    "evaluation": {"limit": 8, "closeness": 0.01},
}


ALTERED = altered(CONFIG).map(lambda values: yaml.safe_dump(values).encode())


@examples(140)
@given(content=damaged(yaml.safe_dump(CONFIG).encode()) | ALTERED)
def test_config_files(content, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    config = holds(load_config, file)
    if config is not None:
        assert 1 <= len(config.seeds) <= 1000 and all(0 <= level < 1 for level in config.levels or ())


SPEC = st.one_of(
    st.text(max_size=30),
    damaged(b"gateskip[shape=scalar,sparsity_weight=0.1]@paper").map(lambda content: content.decode("latin-1")),
    st.builds(
        "{}[{}={}]@{}".format,
        st.sampled_from(["dense", "gateskip", "mod", "calm", "free", "layerskip"]),
        st.sampled_from(["shape", "kv", "sparsity_weight", "capacity", "", "x"]),
        st.text(max_size=6) | st.floats().map(str) | st.integers().map(str),
        st.sampled_from(["bench", "paper", "", "x"]),
    ),
)


@examples(80)
@given(text=SPEC)
def test_method_specs(text):
    def parsed():
        spec = MethodSpec.parse(text)
        return method_class(spec).parse_config(spec)

    holds(parsed)
