"""Lists all checks in the order in which they run: a check comes after those that it needs."""

from adaptive_bench.testing.checking import Check
from adaptive_bench.testing.checks.attachment import builds, detach, identity, intact
from adaptive_bench.testing.checks.causality import batching, causality, determinism, independence
from adaptive_bench.testing.checks.dial_effect import claims, effect, eligible, monotone, phases
from adaptive_bench.testing.checks.executors_agree import cached, ledger, packed
from adaptive_bench.testing.checks.training import cost, finite, gradients, resuming, saving

CHECKS: tuple[Check, ...] = (
    builds,
    determinism,
    identity,
    intact,
    detach,
    packed,
    batching,
    independence,
    causality,
    cached,
    monotone,
    eligible,
    effect,
    phases,
    claims,
    ledger,
    saving,
    gradients,
    resuming,
    finite,
    cost,
)
