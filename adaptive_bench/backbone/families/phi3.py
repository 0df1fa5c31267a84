"""Phi 3 and 4: one map for queries, keys and values, and one for gate and up; a window, and rotary positions for a part
of each head, where the config asks for them.
"""

from adaptive_bench.backbone.families.mistral import one_window
from adaptive_bench.backbone.family import Family

PHI3 = Family(
    "Phi 3, 3.5, 4: fused projections",
    window=one_window,
    tiny={
        "sliding_window": 6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    },
)
