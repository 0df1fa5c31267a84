"""The interface for authors of methods: base classes, what a method sees, and the decisions it returns."""

from adaptive_bench.backbone import Backbone, Branch, Site, described, every_branch
from adaptive_bench.errors import UsageError
from adaptive_bench.method.base import DEFAULT_TARGET, CausalityClass, KVPolicy, Method, initialised_linear
from adaptive_bench.method.call import ForwardCall, Phase
from adaptive_bench.method.decisions import (
    EXECUTE_ALL,
    Decision,
    drop_lowest,
    drop_lowest_by_phase,
    drop_lowest_per_row,
    paper_quantile_keep,
    top_k_per_row,
)
from adaptive_bench.method.dial import DialSpec, DialTable, annealed
from adaptive_bench.method.fitted import (
    Compensation,
    Fitted,
    HeldOutText,
    Streams,
    compensated,
    layers_to_leave_out,
    site_scales,
)
from adaptive_bench.method.kinds import EarlyExit, LogitRouter, leaving_tokens, sampled_choice
from adaptive_bench.method.method_config import InitialChange, MethodConfig, SearchRange
from adaptive_bench.method.session import Session, document_key, draw_key, uniform_from, uniforms_from
from adaptive_bench.method.site_view import SiteView, known_outputs, prompt_outputs
from adaptive_bench.method.specs import (
    config_of,
    method_class,
    method_of,
    starting_spec,
    takes_target,
    trained_alike,
    training_spec,
    why_not_shuffled,
)
from adaptive_bench.method.thresholds import Thresholds
from adaptive_bench.registry import register
from adaptive_bench.spec import MethodSpec, Semantics

__all__ = [
    "DEFAULT_TARGET",
    "EXECUTE_ALL",
    "Backbone",
    "Branch",
    "CausalityClass",
    "Compensation",
    "Decision",
    "DialSpec",
    "DialTable",
    "EarlyExit",
    "Fitted",
    "ForwardCall",
    "HeldOutText",
    "InitialChange",
    "KVPolicy",
    "LogitRouter",
    "Method",
    "MethodConfig",
    "MethodSpec",
    "Phase",
    "SearchRange",
    "Semantics",
    "Session",
    "Site",
    "SiteView",
    "Streams",
    "Thresholds",
    "UsageError",
    "annealed",
    "compensated",
    "config_of",
    "described",
    "document_key",
    "draw_key",
    "drop_lowest",
    "drop_lowest_by_phase",
    "drop_lowest_per_row",
    "every_branch",
    "initialised_linear",
    "known_outputs",
    "layers_to_leave_out",
    "leaving_tokens",
    "method_class",
    "method_of",
    "paper_quantile_keep",
    "prompt_outputs",
    "register",
    "sampled_choice",
    "site_scales",
    "starting_spec",
    "takes_target",
    "top_k_per_row",
    "trained_alike",
    "training_spec",
    "uniform_from",
    "uniforms_from",
    "why_not_shuffled",
]
