"""How sacreBLEU computed the scores of a record: lm-eval uses its defaults, and these are their signatures."""

from __future__ import annotations

from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


def _signature(metric: Any) -> str:
    metric.corpus_score(["a"], [["a"]])  # the signature is complete only after a score
    return str(metric.get_signature())


SIGNATURES = {"bleu": _signature(BLEU()), "chrf": _signature(CHRF())}
