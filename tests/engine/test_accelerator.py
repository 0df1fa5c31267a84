"""Everything a model does, on an accelerator that is pretended: the same results, and nobody waits for values in vain.

A step of writing reads what was chosen (the end test), and one thing more where decisions are known before the layers
run; a step of training reads its losses and the length of its gradient.
"""

import re

import numpy as np
import pytest
import torch
from counted import assert_same, books, turned
from covering import covering
from pretended_accelerator import DEVICE, Mixed, pretended

from adaptive_bench import registry
from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
from adaptive_bench.method import Decision
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.efficiency import time_model
from adaptive_bench.model.generation import generate_queue
from adaptive_bench.model.interventions import collect_decisions, standing_between
from adaptive_bench.processes import Processes
from adaptive_bench.testing.suite import method_specs
from adaptive_bench.training.distributed import DistributedTraining
from adaptive_bench.training.encoding import EncodedExample
from adaptive_bench.training.micro_batches import accumulate, split

pytestmark = pytest.mark.slow

NAMES = registry.names("methods")
FAMILIES = registry.names("families")
# Both semantics, every value of a parameter that has few, and two papers' letters that `check` leaves out.
SPECS = [str(spec) for name in NAMES for spec in method_specs(name)]
SPECS += ["gateskip[rule=text]@paper", "free[kv=recompute]@paper"]
TRAINED = [spec for spec in SPECS if not spec.startswith("base")]
# And the variants of methods on one family each.
ON_FAMILIES = covering(NAMES, FAMILIES)
ON_FAMILIES += [(spec, FAMILIES[number % len(FAMILIES)]) for number, spec in enumerate(SPECS) if spec not in NAMES]
# Read besides the end test: decisions known ahead, which come to the host together, and who waits.
TWO_READS = {"random_skip", "position_skip", "prompt_router", "free@paper", "free[kv=defer]"}
SAVED = 0.3
_SEARCH = re.compile(r"/(path_search|prompt_router)\.py:")


def written(model, prompts, new_tokens):
    """Two rows at a time, or all of them where rows cannot join."""
    joins = model.method.kv_policy != "defer" and model.spec.semantics == "bench"
    return generate_queue(model, prompts, rows=2 if joins else len(prompts), max_new_tokens=new_tokens)


def examples(count, seed=0):
    draw = np.random.default_rng(seed)
    return [EncodedExample(tuple(draw.integers(5, 90, 6 + number).tolist()), 3) for number in range(count)]


@pytest.mark.parametrize("spec", SPECS)
def test_written_as_on_a_cpu_with_few_reads(spec, make_model, make_backbone, random_text):
    """Prefill, decoding and refilled slots: tokens and books are equal; what a step reads does not grow with depth."""
    for layers in (4, 5):
        model = turned(make_model(spec, backbone=make_backbone("llama", num_hidden_layers=layers)))
        prompts = [row[start:] for start, row in enumerate(random_text(3, 8).tolist())]
        wanted, wanted_books = written(model, prompts, 3), books(model)
        with pretended() as accelerator:
            model.to(DEVICE)
            assert written(model, prompts, 3) == wanted
            assert_same(books(model), wanted_books)
            for batch in (prompts, prompts[:1]):  # without refill; and a text alone
                accelerator.reads.clear()
                for new_tokens in (4, 5):
                    before = len(accelerator.reads)
                    generate_queue(model, batch, rows=3, max_new_tokens=new_tokens)
                    reads = len(accelerator.reads) - before
                first = accelerator.reads[:before]
                names = {spec, spec.split("[")[0].split("@")[0]}
                assert reads - len(first) <= (2 if names & TWO_READS else 1), accelerator.reads


@pytest.mark.parametrize(("spec", "family"), ON_FAMILIES)
def test_every_family(spec, family, make_model, make_backbone, random_text):
    """Windows, biases, norms of queries and keys, soft caps; calibrated on the device as on the CPU."""
    on_cpu, model = (make_model(spec, backbone=make_backbone(family, num_hidden_layers=4)) for _ in range(2))
    ids = random_text(6, 12, seed=3)
    text = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    text["continuation_mask"] = torch.arange(12).expand_as(ids) >= 6
    with torch.no_grad():
        points = on_cpu.calibrate([text], [SAVED])
        wanted = turned(on_cpu)(ids[:2], use_cache=True)
        wanted_step = on_cpu(ids[:2, :1], past_key_values=wanted.past_key_values, use_cache=True)
        with pretended():
            model.to(DEVICE)
            assert model.calibrate([{name: part.to(DEVICE) for name, part in text.items()}], [SAVED]) == points
            found = turned(model)(ids[:2].to(DEVICE), use_cache=True)
            step = model(ids[:2, :1].to(DEVICE), past_key_values=found.past_key_values, use_cache=True)
            logits = [found.logits.cpu(), step.logits.cpu()]
    torch.testing.assert_close(logits, [wanted.logits, wanted_step.logits], atol=1e-4, rtol=1e-4)
    assert_same(books(model), books(on_cpu))


@pytest.mark.parametrize("spec", TRAINED)
def test_a_training_step_reads_twice(spec, make_backbone):
    """With micro-batches and gradient checkpointing: loss and gradient are equal, and the losses come to the host once;
    the second read is the length of the gradient, which the loop asks for.
    """
    batch, found = examples(4), []
    for layers in (4, 5):
        for place in ("cpu", DEVICE):
            model = AdaptiveModel.build(make_backbone("llama", num_hidden_layers=layers), spec, seed=1).train()
            model.gradient_checkpointing = True
            model.begin_step(9, 10)
            with pretended() as accelerator:
                model.to(place)
                training = DistributedTraining(model, Processes(), fully_sharded=False)
                loss = accumulate(training, split(batch, 2), 0, "fp32")
                # A search of labels asks of each path in turn whether it ends right: as often as it was told to try.
                searches = "labels=search" in spec
                reads = [one for one in accelerator.reads if not (searches and _SEARCH.search(one))]
                gradient = torch.nn.utils.get_total_norm(
                    [one.grad for one in model.parameters() if one.grad is not None]
                ).item()
            assert len(reads) == (place == DEVICE), reads
            found.append((loss.loss, gradient))
        assert found[-1] == pytest.approx(found[-2], rel=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("spec", SPECS)
def test_answers_that_share_a_prompt_are_scored_alike(spec, make_model, make_backbone, random_text):
    prompt = random_text(1, 9)[0].tolist()
    requests = [(("", ""), prompt, random_text(1, length, seed=length)[0].tolist()) for length in (1, 2, 4)]
    model = turned(make_model(spec, backbone=make_backbone("llama")))
    wanted = AdaptiveLM(model, None, batch_size=4)._loglikelihood_tokens(requests)
    wanted_books = books(model)
    with pretended():
        found = AdaptiveLM(model.to(DEVICE), None, batch_size=4)._loglikelihood_tokens(requests)
    assert [score for score, _ in found] == pytest.approx([score for score, _ in wanted], abs=1e-4)
    assert_same(books(model), wanted_books)


@pytest.mark.parametrize("spec", SPECS)
def test_saved_from_there_and_loaded_to_there(spec, make_model, make_backbone, random_text, tmp_path):
    model, ids = turned(make_model(spec, backbone=make_backbone("llama"))), random_text(2, 8)
    with torch.no_grad():
        wanted = model(ids).logits
        with pretended():
            model.to(DEVICE).save_pretrained(tmp_path)
            loaded = AdaptiveModel.from_pretrained(tmp_path).to(DEVICE)
            found = loaded(ids.to(DEVICE)).logits.cpu()
    assert loaded.dial == model.dial
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_shuffled_decisions_and_hugging_face_generation(make_model, make_backbone, random_text):
    model, ids = turned(make_model("gateskip", backbone=make_backbone("llama"))), random_text(4, 10)
    text = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    text["continuation_mask"] = torch.arange(10).expand_as(ids) >= 5

    def run(place):
        bank = collect_decisions(model, [{name: part.to(place) for name, part in text.items()}])
        with standing_between(model, bank):
            shuffled = written(model, ids.tolist(), 4)
        return shuffled, model.generate(ids.to(place), max_new_tokens=4, do_sample=False).tolist()

    wanted = run("cpu")
    with pretended():
        model.to(DEVICE)
        assert run(DEVICE) == wanted


@pytest.mark.parametrize("spec", [*NAMES, "gateskip[shape=scalar]", "free@paper"])
def test_timed_there(spec, make_model, make_backbone, random_text):
    backbone = make_backbone("llama")
    model = make_model(spec, backbone=backbone)
    saved = min(SAVED, model.method.max_saved_tokens)
    with torch.no_grad(), pretended():
        model.to(DEVICE)
        timing = time_model(backbone, model, [saved], random_text(2, 12).to(DEVICE), prompt=8, rounds=2)
    assert timing["points"][0]["requested"] == saved


@torch.no_grad()
def test_what_lies_elsewhere_or_has_another_type_is_refused_with_its_line(make_model, make_backbone, random_text):
    model, ids = make_model("random_skip", backbone=make_backbone("llama")), random_text(2, 8)
    with pretended():
        model.to(DEVICE)
        model.method.decide_ahead = lambda call: [Decision(scale=torch.ones(2, 8, 1))] * 8  # made on the CPU
        with pytest.raises(Mixed, match=r"at adaptive_bench/engine/\w+\.py:\d+"):
            model(ids.to(DEVICE))
        model.method.decide_ahead = lambda call: None
        model.method.decide = lambda view: Decision(input_scale=torch.ones(2, 8, 1, device=DEVICE))
        model.backbone_model.model.layers[1].mlp.half()
        with pytest.raises(Mixed, match=r"dtype.* at adaptive_bench/engine/\w+\.py:\d+"):
            model(ids.to(DEVICE))
        with pytest.raises(TypeError, match="can't convert cuda:0"):
            ids.to(DEVICE).numpy()


def test_numbers_are_read_wherever_python_needs_them():
    """What these tests can see: torch asks for a size, a place or a bound in a tensor without a call of `item`."""
    with pretended() as accelerator:
        values, at = torch.arange(6.0, device=DEVICE), torch.tensor(2, device=DEVICE)
        places = at[None]
        for read in (lambda: values[at], lambda: values[:at], lambda: values.repeat(at), lambda: torch.arange(at),
                     lambda: torch.full((2,), at), lambda: values.__setitem__(at, 1.0)):  # fmt: skip
            accelerator.reads.clear()
            read()
            assert len(accelerator.reads) == 1
        accelerator.reads.clear()
        values[places], values.index_select(0, places), values * at, values.clamp(max=at), torch.minimum(at, at)
        assert accelerator.reads == []
