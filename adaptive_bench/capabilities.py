"""Reads what a method can do: what the conformance suite found out, as stored beside the method's source file."""

from __future__ import annotations

import json
from typing import NamedTuple

from adaptive_bench import registry
from adaptive_bench.spec import MethodSpec

Matrix = dict[str, dict[str, str]]  # spec -> capability -> value
FILE_NAME = "capabilities.json"


class Capability(NamedTuple):
    """One column of the matrix: its key in the data, its title in tables, and the meaning of its values."""

    key: str
    title: str
    meaning: str


CAPABILITIES = (
    Capability("families", "families", "Model families on which every check passes."),
    Capability("identity", "skip-nothing", "`exact`: the backbone bit for bit; `scaled`: all run, but gated."),
    Capability("start", "untrained", "`intact`: at skip-nothing it is the backbone; `changed`: its page says why not."),
    Capability("causality", "causality", "`C0` earlier text only, `C1` the whole sequence, `C2` the batch."),
    Capability("kv_cache", "KV cache", "`exact`: cached decoding gives the logits of one call over the text."),
    Capability("batch", "batches", "Rows do not depend on their batchmates."),
    Capability("left_padding", "left padding", "Padding before a prompt changes nothing."),
    Capability("likelihood_effect", "log-likelihoods", "The dial moves log-likelihoods."),
    Capability("generation_effect", "generations", "The dial moves generations."),
    Capability("decoding_effect", "cached decoding", "The dial moves what scoring and what cached decoding execute."),
    Capability("ledger", "FLOPs booked", "Every executed FLOP is in the ledger."),
    Capability("saving", "save and load", "A saved and loaded model is the same model."),
    Capability("frozen_backbone", "frozen backbone", "Training leaves the backbone as it was."),
    Capability("calibration", "calibration", "Dials need held-out training text."),
)


def stored_matrix(method: str) -> Matrix:
    """Return the capabilities of a method's specs, as probed when its package was made. They are read from the
    `capabilities.json` beside the method's source file, which is not imported.

    Empty if there is no such file; `adaptive-bench check --capabilities` writes one.
    """
    source = registry.file_of("methods", method)
    file = None if source is None else source.with_name(FILE_NAME)
    if file is None or not file.is_file():
        return {}
    matrix: Matrix = json.loads(file.read_text(encoding="utf-8"))
    return {spec: row for spec, row in matrix.items() if MethodSpec.parse(spec).name == method}
