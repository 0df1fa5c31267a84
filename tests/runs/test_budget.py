"""What a run takes, from sizes alone: held against what is counted, and against the plan."""

from collections import Counter

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from adaptive_bench.config_file import load_config
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.adapters import Adapters
from adaptive_bench.recipe import LoraRecipe, TrainRecipe
from adaptive_bench.runs import about, preflight
from adaptive_bench.runs.budget import Prices, Workload, budget, count_work, empty_model
from adaptive_bench.runs.estimate import steps_left
from adaptive_bench.runs.model_checks import model_facts
from adaptive_bench.spec import MethodSpec
from adaptive_bench.training.cost import FlopCount


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2"])
def test_a_pass_costs_what_torch_counts(family, make_backbone, random_text):
    model = make_backbone(family, "eager")  # torch does not count the fused attention of a CPU
    with FlopCounterMode(display=False) as counter:
        model(random_text(1, 16))
    # torch counts all pairs of tokens, the price those that a causal model looks at
    price = Prices(model).forward(16, 16)
    assert price < counter.get_total_flops() < 1.2 * price
    assert Prices(model).training(16, TrainRecipe()) == 3 * price
    assert Prices(model).training(16, TrainRecipe(lora=LoraRecipe(), gradient_checkpointing=True)) == 3 * price


@pytest.mark.parametrize(("levels", "target"), [(None, None), ((0.0, 0.1, 0.2), None), ((0.0, 0.1, 0.2), 0.2)])
def test_counting_from_names_agrees_with_the_plan(config_of, levels, target):
    methods = "dense,base,random_skip,gateskip,gateskip@paper,router_tuned_mod,calm,static_depth[trained=true]"
    config = config_of(methods, seeds=(1, 2), levels=levels, train={"target": target})
    found = preflight(config)
    steps, values = count_work(config, model_facts(config.model).empty)
    planned = Counter((training.spec, steps_left(training)) for training in found.plan.trainings)
    assert Counter(steps) == planned
    planned = Counter()
    for sweep in found.plan.sweeps:
        planned[sweep.task] += found.estimator.points_left(sweep)
    assert values == planned


def test_texts_of_a_first_look_may_be_as_long_as_they_are_let(config_of):
    """Hardly trained models do not come to an end; others write about as much as the right answer."""
    config = config_of("dense", tasks=("nano_math",), evaluation={"limit": 4, "max_new_tokens": 40})
    empty = model_facts(config.model).empty
    usual = Workload(config, empty, None).asked[0]["nano_math"]
    quick = Workload(config.model_copy(update={"preset": "nano --quick"}), empty, None).asked[0]["nano_math"]
    assert quick.reading == usual.reading
    assert 40 * 4 * Prices(empty).forward(1, 1) < quick.writing
    assert quick.writing > 2 * usual.writing


@pytest.mark.parametrize("lora", [None, LoraRecipe(rank=2)])
@pytest.mark.parametrize("spec", ["dense", "gateskip", "calm", "router_tuned_mod"])
def test_a_training_is_priced_by_what_its_steps_execute(spec, lora, config_of):
    """The count of a step without values is that of a real one, which records keep."""
    config = config_of(spec, train={"lora": None if lora is None else lora.model_dump()})
    facts = model_facts(config.model)
    counted = Prices(facts.empty).step(MethodSpec.parse(spec), config.train, 24, 11)
    model = AdaptiveModel.build(facts.source.load_model(), spec)
    if lora is not None and not model.method.freezes_backbone:
        Adapters(model.backbone_model, lora)
    model.begin_step(375, 1000)
    ids = torch.ones(1, 24, dtype=torch.long)
    count = FlopCount(model, model.backbone)
    later = torch.arange(24)[None] >= 13
    model(ids, labels=ids.masked_fill(~later, -100), continuation_mask=later, return_logits=False).loss.backward()
    assert counted.flops == count.flops
    assert facts.empty.lm_head.weight.requires_grad


def test_hours_follow_from_flops(config_of):
    config = config_of("dense")
    work, spec = Workload(config, model_facts(config.model).empty, None), MethodSpec("dense")
    taken = budget(work, [(spec, 3)], {"nano_qa_ll": 2})
    twice = budget(work, [(spec, 3), (spec, 3)], {"nano_qa_ll": 4})
    assert (twice.training_flops, twice.evaluation_flops) == (2 * taken.training_flops, 2 * taken.evaluation_flops)
    assert taken.hours(1e6)[0] == pytest.approx(taken.training_flops / 3.6e9)
    lines = about(config, preflight(config), 1e6)
    assert any(line.startswith("hours") and "1e+06 FLOP/s" in line for line in lines)


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("meta-llama/Llama-3.2-1B", 1.24),
        ("meta-llama/Llama-3.2-3B-Instruct", 3.21),
        ("meta-llama/Llama-3.1-8B", 8.03),
        ("google/gemma-2-2b", 2.61),
    ],
)
def test_stored_sizes_are_those_of_the_models(model, billions):
    assert sum(each.numel() for each in empty_model(model).parameters()) / 1e9 == pytest.approx(billions, abs=0.006)


def test_without_the_hub_it_says_what_is_known_and_what_is_not(tmp_path):
    config = load_config("paper_lambada", {"out": str(tmp_path), "data_dir": str(tmp_path)})
    lines = "\n".join(about(config, None, 4e14))
    assert "1.24 B parameters, by its name" in lines and "10 trainings, 68,000 steps" in lines
    assert "levels  0 %, 10 %, 20 %, 30 % saved (tokens), trained for 20 %" in lines
    assert "evaluation of lambada not known: The data set EleutherAI/lambada_openai" in lines
    other = config.model_copy(update={"model": "someone/else"})
    assert "someone/else cannot be loaded, and sizes are stored for llama-3.2-1b" in about(other, None)[0]
