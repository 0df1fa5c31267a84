r"""SkipGPT: a router before every attention and every MLP decides, token by token, whether the branch runs.

Idea: attention and MLP matter for different tokens, so each has its own linear router. All routers share one target, so
that layers and branches divide the saving among themselves. Only the routers are trained.

Paper: "SkipGPT: Dynamic Layer Pruning Reinvented with Token Awareness and Module Decoupling",
    https://arxiv.org/abs/2506.04179.
Equations: logits $r = W x + b$ with $x$ the residual stream at the layer's input, for both routers of a layer; a branch
    runs iff $r_{\mathrm{execute}} \ge r_{\mathrm{skip}}$ and adds its full output, else nothing; loss $\mathrm{CE} + 20
    \, | (1 - s) - \bar e |$, $\bar e$ the mean executed share over all branches and tokens; hard Gumbel-Softmax,
    temperature 5 -> 1 linearly. K,V of skipped tokens are computed.

Where paper and code differ, this follows the released inference code: one linear map per router (`router=two_layer` is
the training script's H -> H/4 -> 2 with a ReLU) and no sampling in evaluation (the training script samples). The MLP's
router does not see what attention added, except with `mlp_reads=branch_input`. Padding is excluded from the executed
share (the code includes it).

Deviations: the released code gives routers the raw residual stream; here each token's state is divided by its root mean
square (on SmolLM2-135M norms are 23,600 at the first token and 150 at the others, and routers on the raw stream skip a
tenth of everything before any training). Only stage 1 is included (routers on a frozen model), not the LoRA stage after
it, which leaves the routers as they are. The model starts from the fine-tuned dense one, routers start biased towards
execute (+5), and the target falls from 1 to 1 - s on the schedule all methods share (in the code it is constant or, as
a variant, falls in steps). The dial, an offset on the execute logit at inference, is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from adaptive_bench.method import MethodConfig, SearchRange, SiteView

from .branch_routers import BranchRouters, BranchRoutersConfig, biased_linear, two_layer_router

VERSION = 2  # in 1 routers read the raw residual stream
_LAYER_INPUT = "layer_input"


class SkipGPTConfig(BranchRoutersConfig):
    search_space: ClassVar[Mapping[str, SearchRange]] = {
        "penalty_weight": SearchRange.parse("log:2:200", source="a decade around the released code's 20"),
    }
    penalty_weight: float = Field(20.0, ge=0, description="weight of the distance to the target (released code)")
    router: Literal["linear", "two_layer"] = Field(
        "linear", description="router network: linear (released file), or H -> H/4 -> 2 (training script)"
    )
    mlp_reads: Literal["layer_input", "branch_input"] = Field(
        "layer_input", description="what an MLP's router reads: the layer's input (released code), or the MLP's own"
    )


class SkipGPT(BranchRouters):
    """Routes attention and MLP separately under one target; the dial is an offset on the execute logit."""

    supports_data_parallel = True
    Config: ClassVar[type[MethodConfig]] = SkipGPTConfig
    config: SkipGPTConfig

    def new_router(self, hidden: int) -> nn.Module:
        """A router of the configured kind."""
        if self.config.router == "linear":
            return biased_linear(hidden)
        return two_layer_router(hidden, max(1, hidden // 4))

    def reads(self, view: SiteView) -> Tensor:
        """The residual stream that `mlp_reads` selects, each token divided by its root mean square."""
        if self.config.mlp_reads == "branch_input":
            return view.levelled
        if view.site.branch == "attention":
            view.call.scratch[_LAYER_INPUT] = view.levelled
        return view.call.scratch[_LAYER_INPUT]

    def pass_over(self, view: SiteView) -> None:
        """Keeps the layer's input for the MLP's router when attention is spared."""
        if self.config.mlp_reads == "layer_input" and view.site.branch == "attention":
            view.call.scratch[_LAYER_INPUT] = view.levelled
