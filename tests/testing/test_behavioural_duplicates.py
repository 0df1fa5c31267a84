"""A parameter that changes nothing is found."""

import pytest
from share_dial import ShareDial

from adaptive_bench.method import Decision, MethodConfig, SiteView, draw_key, uniform_from
from adaptive_bench.model.text_decisions import behaviour, duplicate_warnings, says_the_same
from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing import check_specs
from adaptive_bench.testing.backbones import random_text
from adaptive_bench.testing.variants import method_specs


class InertConfig(MethodConfig):
    salt: int = 0
    read_by_nobody: bool = False


class Inert(ShareDial):
    Config = InertConfig

    def decide(self, view: SiteView):
        key = draw_key(self.config.salt, 0, view.site.number)
        return Decision(uniform_from(view.call.input_ids, key) >= self.value)


def specs(*texts):
    return [MethodSpec.parse(text) for text in texts]


def test_the_report_warns_of_an_inert_parameter(register_method, monkeypatch):
    register_method(Inert, "inert")
    monkeypatch.setattr("adaptive_bench.testing.report.Suite.results", lambda self: [])
    report = check_specs([*method_specs("inert"), *specs("inert[salt=1]")], ["llama"])
    (warning,) = report.warnings
    assert warning.startswith("inert and inert[read_by_nobody=true] made the same decisions")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("calm", "calm@paper", True),
        ("gateskip", "gateskip[kv=recompute]", True),
        ("free[kv=defer]", "free@paper", True),
        ("gateskip[kv=evict]", "gateskip[kv=copy_below]", False),
        ("gateskip", "gateskip[shape=scalar]", False),
        ("dense", "static_depth", False),
    ],
)
def test_which_specs_say_the_same(one, other, same):
    assert says_the_same(*specs(one, other)) is same
    assert bool(duplicate_warnings(dict.fromkeys(specs(one, other), "equal"))) is not same


def test_one_warning_names_all_duplicates():
    found = dict.fromkeys(specs("mod", "gateskip[shape=scalar]", "gateskip", "gateskip@paper"), "equal")
    (warning,) = duplicate_warnings(found)
    assert warning.startswith("mod, gateskip[shape=scalar] and gateskip made the same decisions")


def test_behaviour_is_of_decisions_and_logits_at_the_given_dials(make_model):
    """KV policies make the same draws but not the same logits; the dial comes back as it was."""
    text = random_text((12, 9), prompt=5).arguments
    keeps, copies, again = (make_model(f"random_skip[kv={kv}]") for kv in ("recompute", "copy_below", "recompute"))
    keeps.dial = 0.1
    assert behaviour(keeps, text, [0.4]) == behaviour(again, text, [0.4])
    assert behaviour(keeps, text, [0.4]) != behaviour(copies, text, [0.4])
    assert behaviour(keeps, text, [0.4]) != behaviour(keeps, text, [0.5])
    assert behaviour(keeps, text, [0.0]) == behaviour(copies, text, [0.0])
    assert keeps.dial == 0.1
