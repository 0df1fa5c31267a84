"""What the dial does where a text is scored, and where it is written with a cache: a dial that reaches one of them
only looks right in a call over a whole text and compares nothing.
"""

from __future__ import annotations

from adaptive_bench.testing.backbones import Text
from adaptive_bench.testing.check import Facts, check
from adaptive_bench.testing.checks.comparison import demand
from adaptive_bench.testing.checks.dial import with_dial
from adaptive_bench.testing.checks.writing import saved_by_phase
from adaptive_bench.testing.subject import CALIBRATION_PROMPT, SHARES, Subject

ROWS, LENGTH = 16, 24  # rows enough for a share of a decoding call; as long as the calibration text
MOVED = 0.2  # of the largest saving
OFF = 0.4  # likewise; decisions per sequence are few and spread far
PLACES = {"scoring": "scoring", "writing": "cached decoding", "prompt": "prompts"}
_SOUND = ("identity", "batching", "causality", "cached", "monotone", "effect")


@check("phases", needs=_SOUND, rounding=True)
def phases(subject: Subject) -> Facts:
    """The dial moves what scoring executes and what cached decoding executes."""
    model, text = with_dial(subject), _text(subject)
    found = []
    for model.dial in (subject.all_dials[0], subject.all_dials[-1]):
        found.append(saved_by_phase(model, text, CALIBRATION_PROMPT))
    prompts_only = model.method.prompts_only
    for phase in ("scoring", "prompt") if prompts_only else ("scoring", "writing"):
        nothing, most = (saved[phase] for saved in found)
        demand(
            most - nothing >= MOVED * model.method.max_saved_tokens,
            f"A dial must move {PLACES[phase]}, but from {subject.all_dials[0]:g} to {model.dial:g} what {phase} saves "
            f"goes from {nothing:.1%} to {most:.1%} of the token-branches ({_listed(found[0])}, then "
            f"{_listed(found[1])}). Let decide() read self.value (or skip_share) there as well, or say prompts_only.",
        )
    written = [saved["writing"] for saved in found]
    demand(
        not (prompts_only and any(written)),
        f"A method that says prompts_only leaves what is written alone, but there it saves {max(written):.1%} at dial "
        f"{model.dial:g}. Set prompts_only to False.",
    )
    return {"decoding_effect": not prompts_only}


@check("claims", needs=(*_SOUND, "phases"), rounding=True)
def claims(subject: Subject) -> Facts:
    """What dial_for promises to save is saved: in scoring and in cached decoding, in each of them.

    A dial that was solved for on whole texts promises the saving of a whole text, prompt and continuation together.
    """
    model, text = with_dial(subject), _text(subject)
    method = model.method
    for share in SHARES:
        wanted = share * method.max_saved_tokens
        model.dial = method.checked_dial(wanted)
        promised = method.dial_table.nearest(wanted)[1] if method.solves_dial else wanted
        saved = saved_by_phase(model, text, CALIBRATION_PROMPT)
        for phase in ("scoring", "together") if method.solves_dial else ("scoring", "writing"):
            demand(
                abs(saved[phase] - promised) <= OFF * method.max_saved_tokens,
                f"At dial {model.dial:g}, which is to save {promised:.1%} of the token-branches, {phase} saves "
                f"{saved[phase]:.1%} ({_listed(saved)}). Let dial_for() tell what is saved, and calibrate each phase's "
                "rule on tokens of that phase.",
            )
    return {}


def _text(subject: Subject) -> Text:
    return subject.text(*[LENGTH] * ROWS, seed=11, prompt=CALIBRATION_PROMPT)


def _listed(saved: dict[str, float]) -> str:
    return ", ".join(f"{phase} {share:.1%}" for phase, share in saved.items())
