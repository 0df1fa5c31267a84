"""All checks, in the order they run: a check comes after those it needs."""

from adaptive_bench.testing.check import Check
from adaptive_bench.testing.checks.accounting import ledger
from adaptive_bench.testing.checks.attachment import builds, detach
from adaptive_bench.testing.checks.causality import batching, causality
from adaptive_bench.testing.checks.determinism import determinism, independence
from adaptive_bench.testing.checks.dial import effect, eligible, monotone
from adaptive_bench.testing.checks.execution import cached, packed
from adaptive_bench.testing.checks.identity import identity
from adaptive_bench.testing.checks.intact import intact
from adaptive_bench.testing.checks.persistence import resuming, saving
from adaptive_bench.testing.checks.phases import claims, phases
from adaptive_bench.testing.checks.training import cost, finite, gradients

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
