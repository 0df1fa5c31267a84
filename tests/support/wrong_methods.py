"""Methods with one thing wrong with them each, and the check that is about it."""

import math
from typing import ClassVar

import torch
from share_dial import ShareDial
from torch import nn

from adaptive_bench.method import (
    Decision,
    DialSpec,
    InitialChange,
    SiteView,
    draw_key,
    drop_lowest,
    every_branch,
    initialised_linear,
    paper_quantile_keep,
    top_k_per_row,
    uniform_from,
)

WRONG = {}  # the check that is about it, by method


class Sound(ShareDial):
    """Skips some words, others in every branch, and gates the rest."""

    def __init__(self, config, backbone, semantics, seed):
        super().__init__(config, backbone, semantics, seed)
        self.gate = initialised_linear(backbone.hidden_size, 1, std=0.0, bias=0.0)
        self.begin(backbone)

    def begin(self, backbone):
        """What else is to be set up."""

    def decide(self, view: SiteView):
        return Decision(self.scores(view) >= self.share(view), 2 * torch.sigmoid(self.gate(view.normed)))

    def scores(self, view):
        return uniform_from(self.words(view), draw_key(0, 0, view.site.number))

    def words(self, view):
        return view.call.input_ids

    def share(self, view):
        return self.annealed(0.0, 0.1) if view.call.training else self.value


def sound_but(name, check=None, base=Sound, **parts):
    """A method that differs from `base` in some parts."""
    method = type(name, base if isinstance(base, tuple) else (base,), parts | {"__module__": __name__})
    if check is not None:
        WRONG[method] = check
    return method


def starts_unseeded(self, backbone):
    generator = torch.Generator()
    generator.seed()
    nn.init.normal_(self.gate.weight, std=0.5, generator=generator)


def changes_weights(self, backbone):
    with torch.no_grad():
        backbone.layers[0].mlp.down_proj.weight.mul_(1.01)


def the_next_word(self, view):
    ids, valid = view.call.input_ids, view.call.valid
    following = torch.where(valid.roll(-1, 1), ids.roll(-1, 1), ids)
    following[:, -1] = ids[:, -1]
    return following


def with_a_raw_product(self, call):
    states = self.gate.weight.expand(64, -1)
    return {"raw": (1.0, (states @ states.T @ states).square().mean() + self.gate.bias.square().sum())}


DialInTheMiddle = sound_but("DialInTheMiddle", "builds", dial=property(lambda self: DialSpec("share", -1.0, 1.0, 0.0)))
NoDialForNothing = sound_but("NoDialForNothing", "builds", dial_for=lambda self, saved_tokens: max(saved_tokens, 0.05))
BackboneInTheMethod = sound_but(
    "BackboneInTheMethod", "builds", begin=lambda self, backbone: setattr(self, "head", backbone.model.lm_head)
)
UnseededStart = sound_but("UnseededStart", "determinism", begin=starts_unseeded)
RandomStream = sound_but("RandomStream", "determinism", scores=lambda self, view: torch.rand(view.call.input_ids.shape))
KeepsItsDrawsToItself = sound_but(
    "KeepsItsDrawsToItself", "determinism", words=lambda self, view: view.call.prefix_hash
)
Raises = sound_but("Raises", "determinism", share=lambda self, view: [][0] if self.value else 0.0)
NeverAtRest = sound_but("NeverAtRest", "identity", share=lambda self, view: max(0.1, Sound.share(self, view)))
LeavesAHook = sound_but(
    "LeavesAHook",
    "detach",
    begin=lambda self, backbone: backbone.layers[0].register_forward_hook(lambda module, inputs, output: output),
)
ChangesWeights = sound_but("ChangesWeights", "detach", begin=changes_weights)
SkipsMoreWhenPacked = sound_but(
    "SkipsMoreWhenPacked",
    "packed",
    share=lambda self, view: Sound.share(self, view) * (1.0 if view.call.executor == "packed" else 0.5),
)
LooksAtTheBatchSize = sound_but(
    "LooksAtTheBatchSize", "batching", share=lambda self, view: Sound.share(self, view) / view.hidden.shape[0]
)
CountsColumns = sound_but(
    "CountsColumns",
    "batching",
    words=lambda self, view: torch.arange(view.hidden.shape[1]).expand_as(view.call.input_ids),
)
BatchMean = sound_but(
    "BatchMean",
    "batching",
    share=lambda self, view: 2 * Sound.share(self, view) * self.scores(view)[view.call.valid].mean(),
)
# A random control whose draws are those of the text: documents share the fate of a template.
SharesFates = sound_but("SharesFates", "independence", draws=True, words=lambda self, view: view.call.prefix_hash)
# Draws of its own for each document, but which ones depends on the others.
DrawsForTheBatch = sound_but(
    "DrawsForTheBatch",
    "independence",
    draws=True,
    words=lambda self, view: view.call.draw_counters + view.call.session.documents.cumsum(0)[:, None],
)
TreatsDocumentsUnalike = sound_but(
    "TreatsDocumentsUnalike",
    "independence",
    words=lambda self, view: view.call.input_ids + view.call.session.documents[:, None],
)
DrawsForEachDocument = sound_but("DrawsForEachDocument", draws=True, words=lambda self, view: view.call.draw_counters)
LeaksTheFuture = sound_but("LeaksTheFuture", "causality", words=the_next_word)
ForgetsThePrompt = sound_but(
    "ForgetsThePrompt",
    "cached",
    words=lambda self, view: view.call.input_ids + 1000 * (view.call.phase == "decode"),
)
TurnsBack = sound_but("TurnsBack", "monotone", share=lambda self, view: math.sin(math.pi * Sound.share(self, view)))
SkipsBesideWhatItSays = sound_but(
    "SkipsBesideWhatItSays",
    "eligible",
    eligible_sites=property(lambda self: every_branch(range(1, self.backbone_size[0]))),
)
SkipsNothing = sound_but("SkipsNothing", "effect", share=lambda self, view: 0.0)
IgnoresTheDial = sound_but("IgnoresTheDial", "effect", share=lambda self, view: min(Sound.share(self, view), 0.2))
SaysThatItSkipsInPromptsAlone = sound_but("SaysThatItSkipsInPromptsAlone", "phases", prompts_only=True)
SkipsAThirdOfWhatItClaims = sound_but(
    "SkipsAThirdOfWhatItClaims", "claims", share=lambda self, view: Sound.share(self, view) / 3
)
TrainsWithARawProduct = sound_but("TrainsWithARawProduct", "cost", losses=with_a_raw_product)
UnusedParameter = sound_but(
    "UnusedParameter",
    "gradients",
    begin=lambda self, backbone: setattr(self, "spare", nn.Parameter(torch.zeros(3))),
)
NotANumber = sound_but(
    "NotANumber",
    "finite",
    losses=lambda self, call: {"late": (1.0, (self.gate.weight.sum() * 0 + 10.5 - self.step).log())},
)
# Its first step skips as many as its last one.
TrainsFromADamagedStart = sound_but(
    "TrainsFromADamagedStart", "intact", share=lambda self, view: 0.1 if view.call.training else self.value
)
# Its gate is nearly 1 in a narrow model, and less so the wider the model is.
StartsElsewhere = sound_but(
    "StartsElsewhere",
    "intact",
    std=0.005,
    begin=lambda self, backbone: nn.init.normal_(self.gate.weight, std=self.std),
)
SaysItStartsElsewhere = sound_but(
    "SaysItStartsElsewhere",
    "intact",
    initial_change=classmethod(lambda cls, config: InitialChange("it says so", bound=0.05)),
)
StartsFurtherOffThanItSays = sound_but("StartsFurtherOffThanItSays", "intact", (SaysItStartsElsewhere, StartsElsewhere))
SaysItLooksAhead = sound_but("SaysItLooksAhead", paper_class="C1")
SaysItLooksAtTheBatch = sound_but("SaysItLooksAtTheBatch", paper_class="C2")
LooksAheadInPaper = sound_but("LooksAheadInPaper", base=LeaksTheFuture, paper_class="C1")
AveragesInPaper = sound_but("AveragesInPaper", base=BatchMean, paper_class="C2")


class MovesStatesItself(Sound):
    def decide(self, view):
        decision = super().decide(view)
        view.normed = view.normed * 1.05
        return decision


class ReadsTheStreamAsItIs(Sound):
    """In training a router that starts small and leans towards execute decides; of massive activations half."""

    def begin(self, backbone):
        self.router = initialised_linear(backbone.hidden_size, 1, std=0.01, bias=5.0)

    def decide(self, view):
        decision = super().decide(view)
        runs = torch.sigmoid(self.router(view.hidden.float()))
        if not view.call.training:
            return decision
        return Decision((runs[..., 0] > 0.5), decision.scale * runs / runs.detach().clamp(min=1e-3))


class CountsWrong(Sound):
    def decide(self, view):
        gate = 2 * torch.sigmoid(view.normed @ self.gate.weight.T + self.gate.bias)
        return Decision(self.scores(view) >= self.share(view), gate)


class TakesACosineUnseen(Sound):
    def decide(self, view):
        nn.functional.cosine_similarity(view.hidden, view.normed, dim=-1)
        return super().decide(view)


class LosesStateOnSave(Sound):
    trained_share = 0.0

    def begin_step(self, step, total_steps):
        super().begin_step(step, total_steps)
        self.trained_share += 0.1

    def share(self, view):
        return super().share(view) if view.call.training else super().share(view) * (1 - self.trained_share)


class LosesStateOnResume(Sound):
    calls = 0

    def losses(self, call):
        self.calls += 1
        return {"gate": (1 / self.calls, self.gate.weight.square().sum())}


class TrainsTheFrozenBackbone(Sound):
    freezes_backbone = True

    def begin(self, backbone):
        self.layers = (backbone.layers[0],)  # a tuple hides it from nn.Module

    def begin_step(self, step, total_steps):
        super().begin_step(step, total_steps)
        self.layers[0].requires_grad_(True)


class ServesThePromptAlone(Sound):
    """Decoding has a rule of its own, which knows one dial value besides skip-nothing."""

    paper_class: ClassVar[str] = "C1"

    def words(self, view):
        return the_next_word(self, view) if view.call.phase == "prefill" else super().words(view)

    def share(self, view):
        return super().share(view) if view.call.phase == "prefill" else 0.1 * (super().share(view) > 0)


class LiteralQuantileInDecoding(Sound):
    """GateSkip's Algorithm 3 where rows are written: threshold of equal scores is their value, skip where <= it."""

    paper_class: ClassVar[str] = "C2"

    def decide(self, view):
        scores, share = self.scores(view), self.share(view)
        keep = drop_lowest if view.call.phase == "prefill" else paper_quantile_keep
        return Decision(keep(scores, view.call.valid, share), 2 * torch.sigmoid(self.gate(view.normed)))


class FixedPredictorInDecoding(Sound):
    """Mixture-of-Depths with top-k in the prompt and a predictor cut at one half while writing, whatever the dial."""

    paper_class: ClassVar[str] = "C1"

    def decide(self, view):
        scores, scale = self.scores(view), 2 * torch.sigmoid(self.gate(view.normed))
        if view.call.phase == "prefill":
            return Decision(top_k_per_row(scores, view.call.valid, 1 - self.share(view)), scale)
        return Decision(scores > 0.5, scale)


WRONG |= {
    MovesStatesItself: "identity",
    ReadsTheStreamAsItIs: "intact",
    CountsWrong: "ledger",
    TakesACosineUnseen: "ledger",
    LosesStateOnSave: "saving",
    LosesStateOnResume: "resuming",
    TrainsTheFrozenBackbone: "gradients",
}
