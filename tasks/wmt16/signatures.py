"""sacreBLEU's signatures of the scores in a record; lm-eval computes them with sacreBLEU's defaults."""

from __future__ import annotations

from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


def _signature(metric: Any) -> str:
    metric.corpus_score(["a"], [["a"]])  # the signature is complete only after a score
    return str(metric.get_signature())


SIGNATURES = {"bleu": _signature(BLEU()), "chrf": _signature(CHRF())}
