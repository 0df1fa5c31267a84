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


class Sound(ShareDial):
    """Skips some words, others in every branch, and gates the rest."""

    def __init__(self, config, backbone, semantics, seed):
        super().__init__(config, backbone, semantics, seed)
        self.gate = initialised_linear(backbone.hidden_size, 1, std=0.0, bias=0.0)

    def decide(self, view: SiteView):
        return Decision(self.scores(view) >= self.share(view), 2 * torch.sigmoid(self.gate(view.normed)))

    def scores(self, view):
        return uniform_from(self.words(view), draw_key(0, 0, view.site.number))

    def words(self, view):
        return view.call.input_ids

    def share(self, view):
        return self.annealed(0.0, 0.1) if view.call.training else self.value


class SkipsBesideWhatItSays(Sound):
    @property
    def eligible_sites(self):
        return every_branch(range(1, self.backbone_size[0]))


class DialInTheMiddle(Sound):
    @property
    def dial(self):
        return DialSpec("share", -1.0, 1.0, 0.0)


class NoDialForNothing(Sound):
    def dial_for(self, saved_tokens):
        return max(saved_tokens, 0.05)


class UnseededStart(Sound):
    def __init__(self, config, backbone, semantics, seed):
        super().__init__(config, backbone, semantics, seed)
        generator = torch.Generator()
        generator.seed()
        nn.init.normal_(self.gate.weight, std=0.5, generator=generator)


class RandomStream(Sound):
    def scores(self, view):
        return torch.rand(view.call.input_ids.shape)


class NeverAtRest(Sound):
    def share(self, view):
        return max(0.1, super().share(view))


class MovesStatesItself(Sound):
    def decide(self, view):
        decision = super().decide(view)
        view.normed = view.normed * 1.05
        return decision


class StartsElsewhere(Sound):
    """Its gate is nearly 1 in a narrow model, and less so the wider the model is."""

    std = 0.005

    def __init__(self, config, backbone, semantics, seed):
        super().__init__(config, backbone, semantics, seed)
        nn.init.normal_(self.gate.weight, std=self.std)


class SaysItStartsElsewhere(Sound):
    @classmethod
    def initial_change(cls, config):
        return InitialChange("it says so", bound=0.05)


class StartsFurtherOffThanItSays(SaysItStartsElsewhere, StartsElsewhere):
    pass


class TrainsFromADamagedStart(Sound):
    """Its first step skips as many as its last one."""

    def share(self, view):
        return 0.1 if view.call.training else self.value


class ReadsTheStreamAsItIs(Sound):
    """In training a router that starts small and leans towards execute decides; of massive activations half."""

    def __init__(self, config, backbone, semantics, seed):
        super().__init__(config, backbone, semantics, seed)
        self.router = initialised_linear(backbone.hidden_size, 1, std=0.01, bias=5.0)

    def decide(self, view):
        decision = super().decide(view)
        runs = torch.sigmoid(self.router(view.hidden.float()))
        if not view.call.training:
            return decision
        return Decision((runs[..., 0] > 0.5), decision.scale * runs / runs.detach().clamp(min=1e-3))


class LeavesAHook(Sound):
    def __init__(self, config, backbone, semantics, seed):
        super().__init__(config, backbone, semantics, seed)
        backbone.layers[0].register_forward_hook(lambda module, inputs, output: output)


class ChangesWeights(Sound):
    def __init__(self, config, backbone, semantics, seed):
        super().__init__(config, backbone, semantics, seed)
        with torch.no_grad():
            backbone.layers[0].mlp.down_proj.weight.mul_(1.01)


class SkipsMoreWhenPacked(Sound):
    def share(self, view):
        return super().share(view) * (1.0 if view.call.executor == "packed" else 0.5)


class LooksAtTheBatchSize(Sound):
    def share(self, view):
        return super().share(view) / view.hidden.shape[0]


class CountsColumns(Sound):
    def words(self, view):
        return torch.arange(view.hidden.shape[1]).expand_as(view.call.input_ids)


class BatchMean(Sound):
    def share(self, view):
        scores = self.scores(view)
        return 2 * super().share(view) * scores[view.call.valid].mean()


class LeaksTheFuture(Sound):
    def words(self, view):
        ids, valid = view.call.input_ids, view.call.valid
        following = torch.where(valid.roll(-1, 1), ids.roll(-1, 1), ids)
        following[:, -1] = ids[:, -1]
        return following


class SharesFates(Sound):
    """A random control whose draws are those of the text: documents share the fate of a template."""

    draws: ClassVar[bool] = True

    def words(self, view):
        return view.call.prefix_hash


class DrawsForTheBatch(Sound):
    """Draws of its own for each document, but which ones depends on the others."""

    draws: ClassVar[bool] = True

    def words(self, view):
        return view.call.draw_counters + view.call.session.documents.cumsum(0)[:, None]


class KeepsItsDrawsToItself(Sound):
    def words(self, view):
        return view.call.prefix_hash


class TreatsDocumentsUnalike(Sound):
    def words(self, view):
        return super().words(view) + view.call.session.documents[:, None]


class DrawsForEachDocument(Sound):
    draws: ClassVar[bool] = True

    def words(self, view):
        return view.call.draw_counters


class ForgetsThePrompt(Sound):
    def words(self, view):
        return view.call.input_ids + 1000 * (view.call.phase == "decode")


class TurnsBack(Sound):
    def share(self, view):
        return math.sin(math.pi * super().share(view))


class SkipsNothing(Sound):
    def share(self, view):
        return 0.0


class IgnoresTheDial(Sound):
    def share(self, view):
        return min(super().share(view), 0.2)


class CountsWrong(Sound):
    def decide(self, view):
        gate = 2 * torch.sigmoid(view.normed @ self.gate.weight.T + self.gate.bias)
        return Decision(self.scores(view) >= self.share(view), gate)


class TakesACosineUnseen(Sound):
    def decide(self, view):
        nn.functional.cosine_similarity(view.hidden, view.normed, dim=-1)
        return super().decide(view)


class TrainsWithARawProduct(Sound):
    def losses(self, call):
        states = self.gate.weight.expand(64, -1)
        return {"raw": (1.0, (states @ states.T @ states).square().mean() + self.gate.bias.square().sum())}


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


class UnusedParameter(Sound):
    def __init__(self, config, backbone, semantics, seed):
        super().__init__(config, backbone, semantics, seed)
        self.spare = nn.Parameter(torch.zeros(3))


class BackboneInTheMethod(Sound):
    def __init__(self, config, backbone, semantics, seed):
        super().__init__(config, backbone, semantics, seed)
        self.head = backbone.model.lm_head


class TrainsTheFrozenBackbone(Sound):
    freezes_backbone = True

    def __init__(self, config, backbone, semantics, seed):
        super().__init__(config, backbone, semantics, seed)
        self.layers = (backbone.layers[0],)  # a tuple hides it from nn.Module

    def begin_step(self, step, total_steps):
        super().begin_step(step, total_steps)
        self.layers[0].requires_grad_(True)


class NotANumber(Sound):
    def losses(self, call):
        return {"late": (1.0, (self.gate.weight.sum() * 0 + 10.5 - self.step).log())}


class Raises(Sound):
    def share(self, view):
        return [][0] if self.value else 0.0


class SaysItLooksAhead(Sound):
    paper_class: ClassVar[str] = "C1"


class SaysItLooksAtTheBatch(Sound):
    paper_class: ClassVar[str] = "C2"


class LooksAheadInPaper(LeaksTheFuture):
    paper_class: ClassVar[str] = "C1"


class AveragesInPaper(BatchMean):
    paper_class: ClassVar[str] = "C2"


class ServesThePromptAlone(Sound):
    """Decoding has a rule of its own, which knows one dial value besides skip-nothing."""

    paper_class: ClassVar[str] = "C1"

    def words(self, view):
        return LeaksTheFuture.words(self, view) if view.call.phase == "prefill" else super().words(view)

    def share(self, view):
        return super().share(view) if view.call.phase == "prefill" else 0.1 * (super().share(view) > 0)


class SaysThatItSkipsInPromptsAlone(Sound):
    prompts_only: ClassVar[bool] = True


class SkipsAThirdOfWhatItClaims(Sound):
    def share(self, view):
        return super().share(view) / 3


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


WRONG = {
    DialInTheMiddle: "builds",
    NoDialForNothing: "builds",
    BackboneInTheMethod: "builds",
    UnseededStart: "determinism",
    RandomStream: "determinism",
    NeverAtRest: "identity",
    MovesStatesItself: "identity",
    StartsElsewhere: "intact",
    SaysItStartsElsewhere: "intact",
    StartsFurtherOffThanItSays: "intact",
    TrainsFromADamagedStart: "intact",
    ReadsTheStreamAsItIs: "intact",
    LeavesAHook: "detach",
    ChangesWeights: "detach",
    SkipsMoreWhenPacked: "packed",
    LooksAtTheBatchSize: "batching",
    CountsColumns: "batching",
    BatchMean: "batching",
    SharesFates: "independence",
    DrawsForTheBatch: "independence",
    TreatsDocumentsUnalike: "independence",
    KeepsItsDrawsToItself: "determinism",
    LeaksTheFuture: "causality",
    ForgetsThePrompt: "cached",
    TurnsBack: "monotone",
    SkipsBesideWhatItSays: "eligible",
    SkipsNothing: "effect",
    IgnoresTheDial: "effect",
    SaysThatItSkipsInPromptsAlone: "phases",
    SkipsAThirdOfWhatItClaims: "claims",
    CountsWrong: "ledger",
    TakesACosineUnseen: "ledger",
    TrainsWithARawProduct: "cost",
    LosesStateOnSave: "saving",
    LosesStateOnResume: "resuming",
    UnusedParameter: "gradients",
    TrainsTheFrozenBackbone: "gradients",
    NotANumber: "finite",
    Raises: "determinism",
}
