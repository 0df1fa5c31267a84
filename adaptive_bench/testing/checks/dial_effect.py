"""Checks that the dial moves the saving and the model's output, in scoring and in cached decoding.

A dial that moves only one of them looks right in a call over a whole text, but its comparisons mean nothing.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from adaptive_bench.backbone import Site
from adaptive_bench.method import described
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.testing.checking import Facts, NotApplicable, check, demand, difference, logits_of, saved_by_phase
from adaptive_bench.testing.subject import CALIBRATION_PROMPT, SHARES, Subject, Text

SLACK = 0.02  # skipping early shifts later scores, so the saving on a text may fall a little
VISIBLE = 1e-2  # nats


@check("monotone", needs=("determinism",))
def monotone(subject: Subject) -> Facts:
    """The further the dial moves from skip-nothing, the more token-branches are saved on the same text."""
    model, text = with_dial(subject), subject.text(24, 24, 24, 24, seed=7, prompt=4)
    saved = [_saved_tokens(model, text, dial) for dial in subject.all_dials]
    for before, after in pairwise(saved):
        demand(
            after >= before - SLACK,
            f"Saving must not fall while the dial moves away from skip-nothing, but dials "
            f"{[round(dial, 4) for dial in subject.all_dials]} save {[round(share, 3) for share in saved]} of the "
            "token-branches. Make the rule monotone in the dial, and dial_for too.",
        )
    return {}


@check("effect", needs=("determinism",))
def effect(subject: Subject) -> Facts:
    """Different dials give different log-likelihoods and different generations."""
    model, text, prompts = with_dial(subject), subject.text(16, 16, 16, 16, prompt=6), subject.text(9, 9, 9, 9, seed=5)
    dials = [subject.all_dials[0], subject.dials[0], subject.dials[-1]]
    likelihoods, generations = [], []
    for model.dial in dials:
        likelihoods.append(_log_likelihoods(model, text))
        generations.append(new_tokens(model, prompts.input_ids, prompts.attention_mask, max_new_tokens=8))
    pairs = [(0, 2), (1, 2)] if dials[1] != dials[2] else [(0, 2)]  # a dial may have two values only
    moves_likelihoods = all(difference(likelihoods[one], likelihoods[other]) > VISIBLE for one, other in pairs)
    moves_generations = all(generations[one] != generations[other] for one, other in pairs)
    demand(
        moves_likelihoods and moves_generations,
        f"A dial must move log-likelihoods and generations, but from {dials[0]:g} over {dials[1]:g} to {dials[2]:g} "
        f"log-likelihoods {'move' if moves_likelihoods else 'do not'} and generations "
        f"{'move' if moves_generations else 'do not'}. Let decide() read self.value (or skip_share) in prompts, "
        "continuations and decoding alike.",
    )
    return {"likelihood_effect": moves_likelihoods, "generation_effect": moves_generations}


def with_dial(subject: Subject) -> AdaptiveModel:
    """The subject's model, if its dial has more than one value and `dial_for` finds some."""
    model = subject.model()
    if model.method.dial.minimum == model.method.dial.maximum:
        raise NotApplicable("the dial has one value only")
    demand(
        bool(subject.dials),
        f"dial_for must give values away from skip-nothing for savings up to max_saved_tokens "
        f"({model.method.max_saved_tokens:g}), but gives {model.method.dial.skip_nothing:g} only. Set max_saved_tokens "
        "and dial_for.",
    )
    return model


@check("eligible", needs=("determinism",))
def eligible(subject: Subject) -> Facts:
    """Tokens skip only at the method's `eligible_sites`, which every row of a table shows."""
    model, text = subject.model(), subject.text(24, 24, 24, 24, seed=7, prompt=4)
    said = model.method.eligible_sites
    for dial in subject.all_dials:
        _saved_tokens(model, text, dial)
        sites = model.compute_report()["sites"]
        skipped = frozenset(Site(one["layer"], one["branch"]) for one in sites if one["executed"] < 1.0)
        demand(
            skipped <= said,
            f"Tokens may skip at the method's eligible_sites ({described(said)}), but at dial {dial:g} some skip at "
            f"others: {described(skipped - said)}. Let eligible_sites give every branch at which some token may skip.",
        )
    return {}


@torch.no_grad()
def _saved_tokens(model: AdaptiveModel, text: Text, dial: float) -> float:
    model.dial = dial
    model.reset_ledger()
    model(**text.arguments)
    return float(model.compute_report()["saved"]["tokens"])


def _log_likelihoods(model: AdaptiveModel, text: Text) -> Tensor:
    """Log-likelihoods [N] of the tokens of the continuations."""
    # Position t predicts token t + 1. No row is padded, so [N, V] is [B, S, V] again.
    targets = text.input_ids[:, 1:][text.continuation_mask[:, 1:]]
    scores = logits_of(model, text).view(*text.input_ids.shape, -1)[:, :-1].log_softmax(dim=-1)
    return scores[text.continuation_mask[:, 1:]].gather(1, targets[:, None])[:, 0]


ROWS, LENGTH = 16, 24  # enough rows to measure a share in a decoding call; as long as the calibration text
MOVED = 0.2  # least movement, as a share of the largest saving
OFF = 0.4  # most deviation, likewise; it is large, since decisions per sequence are few and vary much
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
        f"A method with prompts_only must not skip in what is written, but it saves {max(written):.1%} there at dial "
        f"{model.dial:g}. Set prompts_only to False.",
    )
    return {"decoding_effect": not prompts_only}


@check("claims", needs=(*_SOUND, "phases"), rounding=True)
def claims(subject: Subject) -> Facts:
    """What dial_for promises to save is saved, in scoring and in cached decoding, in each of them.

    A dial that was solved for on whole texts promises the saving of a whole text, prompt and continuation together.
    """
    model, text = with_dial(subject), _text(subject)
    method = model.method
    for share in SHARES:
        wanted = share * method.max_saved_tokens
        model.dial = method.checked_dial(wanted)
        # A dial that was solved for promises what was measured at it, which may be off the wanted saving.
        promised = method.dial_table.nearest(wanted)[1] if method.solves_dial else wanted
        saved = saved_by_phase(model, text, CALIBRATION_PROMPT)
        for phase in ("scoring", "together") if method.solves_dial else ("scoring", "writing"):
            demand(
                abs(saved[phase] - promised) <= OFF * method.max_saved_tokens,
                f"At dial {model.dial:g}, which is to save {promised:.1%} of the token-branches, {phase} saves "
                f"{saved[phase]:.1%} ({_listed(saved)}). Let dial_for() give the right value, and calibrate each "
                "phase's rule on tokens of that phase.",
            )
    return {}


def _text(subject: Subject) -> Text:
    return subject.text(*[LENGTH] * ROWS, seed=11, prompt=CALIBRATION_PROMPT)


def _listed(saved: dict[str, float]) -> str:
    return ", ".join(f"{phase} {share:.1%}" for phase, share in saved.items())
