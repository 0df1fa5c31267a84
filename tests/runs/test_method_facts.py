"""What a row is said to be a variant of, whatever it was tuned to."""

import pytest

from adaptive_bench.runs.run_plan import plan
from adaptive_bench.runs.table_files import method_facts


@pytest.mark.parametrize(
    ("text", "variant"),
    [
        ("gateskip[shape=scalar,sparsity_weight=0.1]", "gateskip[shape=scalar]"),
        ("gateskip[stride=2]", "gateskip[stride=2]"),
        ("mod[capacity_start=0.9]", "mod"),
        ("calm[confidence=state,exit_interval=2]", "calm[confidence=state,exit_interval=2]"),
    ],
)
def test_a_number_tunes_a_method_and_a_choice_or_a_count_of_layers_makes_a_variant(config_of, text, variant):
    (about,) = method_facts(plan(config_of((text,))))["methods"].values()
    assert about["variant"] == variant
