"""The training FLOPs of a record are those of all steps, as PyTorch's counter sees them."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from adaptive_bench.store.records import Record
from adaptive_bench.training import train


@pytest.fixture
def cost_of(model_of, examples, tokenizer, recipe, tmp_path):
    """`cost_of(spec)`: the record's FLOPs, and those the counter saw."""

    def measured(spec, **changes):
        model = model_of(spec, layers=4)
        model.backbone_model.set_attn_implementation("eager")  # the counter sees nothing of fused attention on a CPU
        some, folder = recipe.model_copy(update=changes), tmp_path / f"{spec}{len(list(tmp_path.iterdir()))}"
        with FlopCounterMode(display=False) as counter:
            train(model, examples, tokenizer, some, seed=1, folder=folder)
        return Record(folder).read("cost")["flops"], counter.get_total_flops()

    return measured


@pytest.mark.parametrize("spec", ["dense", "layerskip", "calm", "gateskip"])
def test_every_step_is_counted(cost_of, spec):
    recorded, executed = cost_of(spec)
    assert recorded == pytest.approx(executed, rel=0.01)


@pytest.mark.parametrize("changes", [{"gradient_checkpointing": True}, {"accumulation": 2}])
def test_what_runs_again_counts_again(cost_of, changes):
    recorded, executed = cost_of("layerskip", **changes)
    assert recorded == pytest.approx(executed, rel=0.01)


def test_a_curriculum_that_adds_heads_costs_more_than_its_first_step_says(cost_of):
    """The gradual curriculum begins with the dense model's one head and ends with one at every layer."""
    assert cost_of("layerskip")[0] > 1.05 * cost_of("dense")[0]
