"""The control of shuffled decisions: every token skips as some other one does, as often, and nothing else changes."""

import copy
import hashlib

import pytest
import torch
from covering import slow

from adaptive_bench import registry
from adaptive_bench.backbone import Backbone
from adaptive_bench.errors import UsageError
from adaptive_bench.method import Decision, DialSpec, Method, MethodConfig, document_key
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import generate_queue, new_tokens
from adaptive_bench.model.interventions import collect_decisions, standing_between
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.runs.run_plan import VERSION
from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing.checks import CHECKS
from adaptive_bench.testing.subject import CALIBRATION_TEXT, Subject
from adaptive_bench.testing.suite import Suite

ALIKE = ["dense", "layerskip", "static_depth"]
CHOOSING = [name for name in registry.names("methods") if name not in (*ALIKE, "base", "gated", "position_skip")]
CHOOSING += ["gateskip[skip_unit=layer]", "gateskip[kv=evict]", "gateskip[placement=both]", "free@paper"]
CHOOSING += ["prompt_router[labels=search,simulations=8]", "calm[confidence=state]", "calm[confidence=classifier]"]
CHOOSING += ["calm[exit_prompt=true]"]
# What a control has to be as any method has: causal, free of the batch, the same in reading and in writing ...
SOUND = ("determinism", "batching", "causality", "packed", "cached", "phases", "identity", "effect")


class Control(AdaptiveModel):
    """A model whose decisions are shuffled at whatever dial value it is turned to."""

    @property
    def dial(self):
        return self.method.value

    @dial.setter
    def dial(self, value):
        self.between = None
        AdaptiveModel.dial.fset(self, value)
        if not self.training:
            self.between = collect_decisions(self, [CALIBRATION_TEXT.arguments])


class ShuffledSubject(Subject):
    def model(self):
        self._shared.between = None
        self._shared.__class__ = Control
        return super().model()


@pytest.mark.parametrize(
    "spec", ["gateskip", "calm", *slow("mod", "skiplayer", "router_tuned_mod", "free", "free@paper")]
)
def test_the_control_conforms_as_methods_do(spec):
    suite = Suite(MethodSpec.parse(spec), "llama", debug=True)
    suite.subject = ShuffledSubject(suite.subject.spec, "llama")
    # Exits probe for their own decisions and are charged for the drawn ones: there the books are not what was run.
    asked = SOUND if spec.startswith(("calm", "free")) else (*SOUND, "ledger")
    results = {check.name: suite.result(check) for check in CHECKS if check.name in asked}
    assert {name: one.message for name, one in results.items() if one.status == "failed"} == {}
    assert {name for name, one in results.items() if one.status == "passed"} >= {"batching", "causality", "cached"}


ROWS, LENGTH, PROMPT = 60, 24, 12


@pytest.fixture
def text(random_text):
    """60 documents of 12 tokens of a prompt and 12 of an answer."""
    ids = random_text(ROWS, LENGTH)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "continuation_mask": torch.arange(LENGTH).expand_as(ids) >= PROMPT,
    }


@pytest.fixture
def keys():
    return torch.tensor([document_key("some_task", number) for number in range(ROWS)])


@pytest.fixture
def turned(shared_model):
    """`turned(spec)`: a model whose dial is set where some tokens skip and others do not."""

    def turn(spec):
        model = shared_model(spec)
        model.dial = model.method.dial_for(0.3 if model.method.max_saved_tokens > 0.6 else 0.1)
        return model

    return turn


def kept(model, text, **given):
    """[sites, B, S] who executes, and the model's output."""
    with torch.no_grad(), recorded_decisions(model.method) as decisions:
        output = model(**text, **given)
    return torch.stack([decision.keep for _, decision in decisions]), output


def of_kinds(masks):
    """The tokens of the three kinds, each [sites, tokens]."""
    prompt, last, answer = masks[:, :, : PROMPT - 1], masks[:, :, PROMPT - 1], masks[:, :, PROMPT:]
    return prompt.flatten(1), last, answer.flatten(1)


@pytest.mark.parametrize("spec", CHOOSING)
def test_every_site_skips_as_often_by_whole_vectors_and_it_costs_the_same(spec, turned, text, keys):
    """Of each kind of token; so all savings are equal but for the draw, what it costs to decide among it. What one
    token does at all sites is what some token of its kind did: an exit stays an exit.
    """
    model = turned(spec)
    model.reset_ledger()
    own, _ = kept(model, text, documents=keys)
    wanted = model.compute_report()["saved"]
    with standing_between(model, collect_decisions(model, [text])):
        model.reset_ledger()
        control, _ = kept(model, text, documents=keys)
    found = model.compute_report()["saved"]
    drawn_from, _ = kept(model, text)
    for mine, other in zip(of_kinds(drawn_from), of_kinds(control), strict=True):
        assert {tuple(one) for one in other.T.tolist()} <= {tuple(one) for one in mine.T.tolist()}
    if spec.startswith(("calm", "free")):
        assert not (control[1:] & ~control[:-1]).any()
    for mine, other in zip(of_kinds(own), of_kinds(control), strict=True):
        rate, draws = mine.double().mean(dim=1), mine.shape[1]
        if model.method.once_per_prompt:  # one draw for a row's whole answer
            draws = min(draws, len(text["input_ids"]))
        bound = 5 * (rate * (1 - rate) / draws).sqrt()
        assert ((other.double().mean(dim=1) - rate).abs() <= bound).all()
    assert wanted["tokens"] > 0.02
    for axis in ("tokens", "core", "net"):
        assert found[axis] == pytest.approx(wanted[axis], abs=0.03)
    assert (own != control).any()


@pytest.mark.parametrize("spec", ALIKE)
def test_where_all_tokens_are_treated_alike_the_control_is_the_method(spec, turned, text, keys):
    model = turned(spec)
    model.reset_ledger()
    own, wanted = kept(model, text, documents=keys)
    report = model.compute_report()
    with standing_between(model, collect_decisions(model, [text])):
        model.reset_ledger()
        control, found = kept(model, text, documents=keys)
    assert torch.equal(own, control)
    assert torch.equal(wanted.logits, found.logits)
    assert model.compute_report() == report


@pytest.mark.parametrize("spec", ["gateskip", "mod", "skiplayer", "calm", "free"])
def test_draws_are_the_documents_own_in_any_batch_cache_and_fork(spec, turned, text, keys):
    """The same fate in reading and in writing, in any order of rows, and another one for another document."""
    model = turned(spec)
    ids, same = text["input_ids"][:3], text["input_ids"][:1].expand(3, -1)
    with standing_between(model, collect_decisions(model, [text])):
        prompts = {"input_ids": ids[:, :PROMPT]}
        one, _ = kept(model, {"input_ids": ids, "continuation_mask": text["continuation_mask"][:3]}, documents=keys[:3])
        again, _ = kept(
            model,
            {"input_ids": ids.flip(0), "continuation_mask": text["continuation_mask"][:3]},
            documents=keys[:3].flip(0),
        )
        assert torch.equal(again.flip(1), one)
        begun, output = kept(model, prompts, documents=keys[:3], use_cache=True)
        fork = output.past_key_values.fork(torch.tensor([2, 0]))
        tails, _ = kept(
            model,
            {"input_ids": ids[[2, 0], PROMPT:]},
            past_key_values=fork,
            phase="prefill",
            continuation_mask=text["continuation_mask"][:2, PROMPT:],
        )
        assert torch.equal(tails, one[:, [2, 0], PROMPT:])
        cache, parts = output.past_key_values, [begun]
        for at in range(PROMPT, LENGTH):
            step, _ = kept(model, {"input_ids": ids[:, at : at + 1]}, past_key_values=cache, use_cache=True)
            parts.append(step)
        assert torch.equal(torch.cat(parts, dim=2), one)
        apart, _ = kept(
            model, {"input_ids": same, "continuation_mask": text["continuation_mask"][:3]}, documents=keys[:3]
        )
        assert not torch.equal(apart[:, 0], apart[:, 1])


@pytest.mark.parametrize("spec", ["gateskip", "mod", "calm", "free"])
def test_texts_that_join_a_batch_are_those_written_alone(spec, turned, text):
    model = turned(spec)
    prompts = [text["input_ids"][row, :length].tolist() for row, length in enumerate((11, 3, 9, 1, 8, 5))]
    keys = [document_key("some_task", number) for number in range(len(prompts))]
    writing = {"max_new_tokens": 10, "stop": lambda new: sum(new) % 6 == 0}
    with standing_between(model, collect_decisions(model, [text])):
        alone = [
            new_tokens(model, torch.tensor([prompt]), documents=[key], **writing)[0]
            for prompt, key in zip(prompts, keys, strict=True)
        ]
        for rows in (2, 4):
            assert generate_queue(model, prompts, rows=rows, documents=keys, **writing) == alone


@pytest.mark.parametrize("spec", ["gateskip", "calm"])
def test_gates_scale_what_executes_and_exits_answer_from_where_they_leave(spec, turned, text, keys):
    """The logits are those of the masked executor, which executes decisions to the letter, and a token that exits is
    read off its state there.
    """
    model = turned(spec)
    with standing_between(model, collect_decisions(model, [text])):
        try:
            found = []
            for model.executor in ("packed", "masked"):
                found.append(kept(model, text, documents=keys)[1].logits)
        finally:
            model.executor = None
    torch.testing.assert_close(*found, atol=1e-4, rtol=0)


class ByWord(Method):
    """Skips everything for some words: the worth of its decisions is known by construction."""

    def __init__(self, backbone, skipped):
        super().__init__(MethodConfig(), Backbone(backbone), "bench", 0)
        self.skipped = skipped

    @property
    def dial(self):
        return DialSpec("none", 0.0, 0.0, 0.0)

    def decide(self, view):
        return Decision(keep=~self.skipped[view.call.input_ids])


def agreement(model, dense, text, keys):
    """Share of tokens after which both predict the same word."""
    with torch.no_grad():
        return float((model(**text, documents=keys).logits.argmax(-1) == dense).float().mean())


@pytest.mark.parametrize("matters", [True, False])
@torch.no_grad()
def test_the_control_is_worse_where_the_choice_matters_and_equal_where_it_does_not(matters, make_backbone, text, keys):
    """Without attention every word is a model of its own. Those whose prediction no branch changes may skip: the method
    loses nothing, whoever draws its decisions loses the other words. Where branches add nothing, it is all the same.
    """
    backbone = copy.deepcopy(make_backbone("llama"))
    for layer in backbone.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.mul_(0.3 if matters else 0.0)
    words = torch.arange(backbone.config.vocab_size)
    full = backbone(words[:, None]).logits[:, 0].argmax(-1)
    empty = backbone.lm_head(backbone.model.norm(backbone.model.embed_tokens(words))).argmax(-1)
    same = full == empty if matters else words % 3 == 0
    assert 0.05 < same[text["input_ids"]].float().mean() < 0.95
    model = AdaptiveModel(backbone, ByWord(backbone, same), MethodSpec("by_word")).eval()
    dense = full[text["input_ids"]]
    assert agreement(model, dense, text, keys) == 1.0
    with standing_between(model, collect_decisions(model, [text])):
        control = agreement(model, dense, text, keys)
    assert control < 0.97 if matters else control == 1.0


def test_a_kind_the_text_has_none_of_draws_from_the_next_best(turned, text):
    model = turned("gateskip")
    whole = {name: part[:, PROMPT:] for name, part in text.items()}  # an answer without a prompt
    bank = collect_decisions(model, [whole])
    assert bank.counts == (0, 0, ROWS * (LENGTH - PROMPT))
    with standing_between(model, bank):
        masks, _ = kept(model, text)
    assert not masks.all()


def test_the_draws_stay_those_that_records_were_made_with(make_backbone, text, keys):
    """Whoever moves them raises VERSION in adaptive_bench/runs/run_plan.py."""
    backbone = make_backbone("llama")
    skipped = torch.arange(backbone.config.vocab_size) % 3 == 0
    model = AdaptiveModel(backbone, ByWord(backbone, skipped), MethodSpec("by_word")).eval()
    with standing_between(model, collect_decisions(model, [text])):
        masks, _ = kept(model, text, documents=keys)
    digest = hashlib.sha256(masks.numpy().tobytes()).hexdigest()[:16]
    assert (VERSION, digest) == (2, "900a3bc590a1f6c0")


def test_what_cannot_be_shuffled_is_refused(make_model, turned, text):
    for spec, why in (("gateskip@paper", "the other sequences of a batch"), ("mod@paper", "a whole sequence")):
        with pytest.raises(UsageError, match=why):
            collect_decisions(make_model(spec), [text])
    model = turned("gateskip")
    with pytest.raises(UsageError, match="0 tokens"):
        collect_decisions(model, [])
    with standing_between(model, collect_decisions(model, [text])), pytest.raises(UsageError, match="one dial value"):
        model.dial = 1.0
    before = model.compute_report()
    collect_decisions(model, [text])
    assert model.compute_report() == before and model.between is None


def test_an_answer_has_the_decisions_of_one_other_answer(turned, text, keys):
    """Where a method decides once per prompt, so does its control: no token of an answer differs from the next."""
    model = turned("prompt_router")
    with standing_between(model, collect_decisions(model, [text])):
        control, _ = kept(model, text, documents=keys)
    follows = text["continuation_mask"].bool() & text["attention_mask"].bool()
    paths = []
    for row in range(len(keys)):
        answer = control[:, row][:, follows[row]]
        assert torch.equal(answer, answer[:, :1].expand_as(answer))
        paths.append(tuple(answer[:, 0].tolist()))
    assert len(set(paths)) > 1
