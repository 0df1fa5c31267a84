"""Decides where the methods of a run may let tokens skip: everywhere, or only at sites that are cheap to skip.

The cost of each site is measured on the model and kept beside the records, under the fingerprints of model and text, so
that other runs can read it.
"""

from __future__ import annotations

from typing import Any

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.method import method_class
from adaptive_bench.model.interventions import SiteCosts, site_costs
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.backbone_source import BackboneSource, find_device
from adaptive_bench.runs.precision import kept
from adaptive_bench.runs.training_text import draw_site_text
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import examples_fingerprint, key_of
from adaptive_bench.task import Example
from adaptive_bench.training import calibration_batches, encode_examples
from adaptive_bench.training.encoding import padding_id

VERSION = 1  # raised when the measurement changes
FOLDER = "sites"
_TOKENS, _LENGTH = 256, 64  # tokens of the text, at most a few more, and of one example
_OF_PAPERS = ("paper_", "nano")  # beginnings of the names of presets for which `auto` spares no site
_measured: dict[str, SiteCosts] = {}  # by key; kept, as a run is planned more than once


class SitesNotMeasured(Exception):
    """The costs of a model's sites are not on disk."""


def spares(spec: MethodSpec, config: RunConfig) -> bool:
    """Whether a method of a run leaves alone the sites that measuring finds costly."""
    if config.eligible == "all" or not method_class(spec).spares:
        return False
    if config.eligible == "measured":
        return True
    of_paper = (config.preset or "").startswith(_OF_PAPERS) or config.model in registry.names("models")
    return not of_paper and spec.semantics != "paper"


def measured_sites(
    config: RunConfig, source: BackboneSource, reporter: Reporter, *, measures: bool = True
) -> SiteCosts | None:
    """The costs of the sites of a run's model, read from disk or measured; `None` if no method of the run spares any.

    Args:
        measures: Whether costs that are not on disk may be measured.

    Raises:
        SitesNotMeasured: The costs are not on disk and may not be measured.
        UsageError: `--eligible measured` was asked for, and there is no held-out training text.
        EnvironmentProblem: The model or the data cannot be read.
    """
    if not any(spares(MethodSpec.parse(text), config) for text in config.methods):
        return None
    text = draw_site_text(config)
    if not text:
        if config.eligible == "auto":
            return None
        raise UsageError(
            f"Sites are measured on held-out training text, but {', '.join(config.tasks)} has none. Name a task that "
            f"has some with --train-on, or let tokens skip everywhere with --eligible all."
        )
    about = {"version": VERSION, "backbone": source.fingerprint, "text": examples_fingerprint(text)}
    about |= {"chat_template": True} if config.chat_template else {}
    key = key_of(about)
    if key not in _measured:
        file = config.out / FOLDER / f"{key}.json"
        if not measures and not file.is_file():
            raise SitesNotMeasured
        known = kept(file, lambda: about | _measure(config, source, text, reporter).to_json())
        _measured[key] = SiteCosts.from_json(known)
    return _measured[key]


def key_entry(costs: SiteCosts | None, spec: MethodSpec, config: RunConfig) -> dict[str, Any]:
    """What spared sites add to the keys of a spec's trainings and evaluations; empty if no site is spared."""
    if costs is None or not (costs.spared or costs.keep_first) or not spares(spec, config):
        return {}
    return {"eligible": {"spared": [list(site) for site in sorted(costs.spared)], "keep_first": costs.keep_first}}


def _measure(config: RunConfig, source: BackboneSource, text: list[Example], reporter: Reporter) -> SiteCosts:
    model: Any = source.load_model()
    model = model.to(find_device(config.device)).eval()
    tokenizer = source.load_tokenizer()
    length = min(_LENGTH, config.train.max_length, model.config.max_position_embeddings)
    encoded, tokens = [], 0
    for example in encode_examples(text, tokenizer, length, SilentReporter(), chat_template=config.chat_template):
        if tokens < _TOKENS:
            encoded.append(example)
            tokens += len(example.token_ids)
    batches = calibration_batches(encoded, padding_id(tokenizer), len(encoded), model.device)
    with reporter.task("measure sites", total=2 * model.config.num_hidden_layers) as task:
        found = site_costs(model, batches, task=task)
    reporter.line(f"eligible: {found.described()}")
    return found
