"""The training loop: what it logs, keeps and refuses, and what a training costs."""

import json
import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from adaptive_bench.errors import EnvironmentProblem, TrainingDiverged
from adaptive_bench.store.records import Record
from adaptive_bench.training.loop import learning_rate_factor, train

ROUNDING = 5e-7  # four units in the last place of fp32: the same tokens, summed in other groups


def log_of(folder):
    return [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]


def final_bytes(folder):
    checkpoint = folder / "checkpoint"
    return {str(file.relative_to(checkpoint)): file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()}


@pytest.mark.parametrize("spec", ["dense", "gateskip", "mod", "random_skip[trained=true]"])
def test_the_same_seed_gives_the_same_bytes(model_of, examples, tokenizer, recipe, tmp_path, spec):
    for name in "ab":
        train(model_of(spec), examples, tokenizer, recipe, seed=1, folder=tmp_path / name)
    assert final_bytes(tmp_path / "a") == final_bytes(tmp_path / "b")
    assert (tmp_path / "a/train.jsonl").read_bytes() == (tmp_path / "b/train.jsonl").read_bytes()
    train(model_of(spec), examples, tokenizer, recipe, seed=2, folder=tmp_path / "c")
    assert final_bytes(tmp_path / "a") != final_bytes(tmp_path / "c")


def test_every_method_sees_the_same_tokens_in_the_same_order(model_of, examples, tokenizer, recipe, tmp_path):
    for spec in ("dense", "gateskip", "mod"):
        train(model_of(spec), examples, tokenizer, recipe, seed=1, folder=tmp_path / spec)
    first, *others = (Record(tmp_path / spec).read("data") for spec in ("dense", "gateskip", "mod"))
    assert first["order_sha256"] and others == [first, first]


def test_losses_of_the_method_are_logged_beside_the_cross_entropy(model_of, examples, tokenizer, recipe, tmp_path):
    train(model_of("gateskip"), examples, tokenizer, recipe, seed=1, folder=tmp_path)
    for entry in log_of(tmp_path):
        assert entry["terms"].keys() == {"ce", "sparsity"}
        assert entry["loss"] == pytest.approx(entry["terms"]["ce"] + 1.0 * entry["terms"]["sparsity"], abs=1e-5)


def test_a_method_may_have_a_learning_rate_of_its_own(model_of, examples, tokenizer, recipe, tmp_path):
    recipe = recipe.model_copy(update={"weight_decay": 0.0})
    model, before = model_of("gateskip"), model_of("gateskip")
    train(model, examples, tokenizer, recipe, 1e-9, seed=1, folder=tmp_path)
    moved = {
        name: float((value - before.get_parameter(name)).detach().abs().max())
        for name, value in model.named_parameters()
    }
    assert all((change < 1e-7) == name.startswith("method.") for name, change in moved.items())


def test_training_learns_and_leaves_a_complete_record(model, examples, tokenizer, recipe, tmp_path):
    recipe = recipe.model_copy(update={"steps": 30, "learning_rate": 1e-2})
    begun = []
    model.begin_step = lambda step, total: begun.append((step, total))
    train(model, examples, tokenizer, recipe, seed=1, folder=tmp_path)
    log = log_of(tmp_path)
    assert [entry["step"] for entry in log] == list(range(1, 31))
    assert log[-1]["loss"] < 0.7 * log[0]["loss"]
    assert log[0]["terms"]["ce"] == pytest.approx(log[0]["loss"])
    assert begun == [(step, 30) for step in range(1, 31)]
    data = Record(tmp_path).read("data")
    assert data["sequences"] == 120 and data["loss_tokens"] == sum(entry["tokens"] for entry in log)
    assert not (tmp_path / "resume").exists() and Record(tmp_path).read("timing")["steps"] == 30
    assert not model.training


@pytest.mark.parametrize("spec", ["dense", "gateskip", "mod"])
def test_micro_batches_change_nothing_but_rounding(spec, model_of, examples, tokenizer, recipe, tmp_path):
    weights, losses = [], []
    for accumulation in (1, 2, 4):
        model = model_of(spec)
        split = recipe.model_copy(update={"accumulation": accumulation})
        train(model, examples, tokenizer, split, seed=1, folder=tmp_path / str(accumulation))
        weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
        losses.append([entry["loss"] for entry in log_of(tmp_path / str(accumulation))])
    for other in (1, 2):
        assert losses[other] == pytest.approx(losses[0], rel=ROUNDING)
        # Adam turns rounding of near-zero gradients into steps, hence the wider bound on weights.
        torch.testing.assert_close(weights[other], weights[0], atol=2e-4, rtol=0)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory. Tried"), MemoryError()])
def test_out_of_memory_halves_the_micro_batch_aloud(model_of, examples, tokenizer, recipe, tmp_path, error, lines):
    train(model_of(), examples, tokenizer, recipe, seed=1, folder=tmp_path / "plenty")
    model = model_of()
    roomy = model.forward

    def cramped(input_ids, **rest):
        if len(input_ids) > 2:
            raise error
        return roomy(input_ids, **rest)

    model.forward = cramped
    train(model, examples, tokenizer, recipe, seed=1, folder=tmp_path / "scarce", reporter=lines)
    assert len(lines.lines) == 1 and "2 micro-batches" in lines.lines[0]
    plenty, scarce = (log_of(tmp_path / name) for name in ("plenty", "scarce"))
    assert [entry["loss"] for entry in scarce] == pytest.approx([entry["loss"] for entry in plenty], rel=ROUNDING)


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("DefaultCPUAllocator: can't allocate memory", EnvironmentProblem, r"one sequence.*Lower train\.max_length"),
        ("shapes do not fit", RuntimeError, "shapes"),
    ],
)
def test_out_of_memory_with_one_sequence_is_told_from_other_errors(
    model, examples, tokenizer, recipe, tmp_path, said, kind, told
):
    def broken(**_):
        raise RuntimeError(said)

    model.forward = broken
    with pytest.raises(kind, match=told):
        train(model, examples, tokenizer, recipe, seed=1, folder=tmp_path)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_with_advice(model, examples, tokenizer, recipe, tmp_path, value):
    healthy, calls = model.forward, []

    def poisoned(**inputs):
        output = healthy(**inputs)
        calls.append(1)
        if len(calls) == 3:
            output.loss = output.loss * value
        return output

    model.forward = poisoned
    with pytest.raises(TrainingDiverged, match=r"step 3 of 6 with learning rate 0\.003.*train\.learning_rate"):
        train(model, examples, tokenizer, recipe, seed=1, folder=tmp_path)
    assert len(log_of(tmp_path)) == 2 and not (tmp_path / "checkpoint").exists()


def test_before_the_first_update_no_rate_is_blamed(model, examples, tokenizer, recipe, tmp_path):
    healthy = model.forward

    def poisoned(**inputs):
        output = healthy(**inputs)
        output.loss = output.loss * math.nan
        return output

    model.forward = poisoned
    with pytest.raises(TrainingDiverged, match="step 1 of 6, before any weight was changed") as stopped:
        train(model, examples, tokenizer, recipe, seed=1, folder=tmp_path)
    assert "learning_rate" not in str(stopped.value) and "scales a branch" in str(stopped.value)


@pytest.mark.parametrize("decay", ["linear_end", "cosine"])
def test_the_learning_rate_warms_up_and_never_rises_again(decay):
    factors = [learning_rate_factor(decay, step, 10, 100) for step in range(300)]
    peak = factors.index(max(factors))
    assert factors[peak] == 1.0 and peak == 10
    assert factors[:11] == sorted(factors[:11]) and factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[0] > 0 and factors[100:] == [0.0] * 200


def test_a_linear_end_holds_the_peak_while_targets_move():
    factors = [learning_rate_factor("linear_end", step, 10, 100) for step in range(100)]
    assert set(factors[10:61]) == {1.0} and factors[80] == pytest.approx(0.5) and factors[99] == pytest.approx(0.025)
    assert learning_rate_factor("linear_end", 95, 90, 100) == pytest.approx(0.5)  # a warm-up into the end is no rise


def test_the_cost_of_a_training_is_recorded(model_of, examples, tokenizer, recipe, tmp_path):
    costs = {}
    for spec in ("dense", "gateskip"):
        train(model_of(spec), examples, tokenizer, recipe, seed=1, folder=tmp_path / spec)
        costs[spec] = Record(tmp_path / spec).read("cost")
        assert costs[spec]["tokens"] == Record(tmp_path / spec).read("data")["tokens"]
    model = model_of("gateskip")
    assert costs["dense"]["parameters_added"] == 0
    assert costs["gateskip"]["parameters_added"] == sum(p.numel() for p in model.method.parameters())


# The training FLOPs of a record are those of all steps, as PyTorch's counter sees them.


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
