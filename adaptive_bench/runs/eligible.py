"""Where the methods of a run may let tokens skip: everywhere, or where measuring its model does not spare a site.

What was measured is kept beside the records, by the model's fingerprint and the text's: other runs read it.
"""

from __future__ import annotations

import json
from typing import Any

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.method import method_class
from adaptive_bench.model.interventions import SiteCosts, site_costs
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.backbone_source import BackboneSource, find_device
from adaptive_bench.runs.training_text import draw_site_text
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import examples_fingerprint, key_of
from adaptive_bench.task import Example
from adaptive_bench.training import calibration_batches, encode_examples
from adaptive_bench.training.encoding import padding_id

VERSION = 1  # of what is measured, and how
FOLDER = "sites"
_TOKENS, _LENGTH = 256, 64  # of the text, and of one example
_OF_PAPERS = ("paper_", "nano")  # presets
_measured: dict[str, SiteCosts] = {}  # by key: a run is planned more than once


class SitesNotMeasured(Exception):
    """What the sites of a model cost is not on disk."""


def spares(spec: MethodSpec, config: RunConfig) -> bool:
    """Whether a method of a run spares what measuring finds."""
    if config.eligible == "all" or not method_class(spec).spares:
        return False
    if config.eligible == "measured":
        return True
    of_paper = (config.preset or "").startswith(_OF_PAPERS) or config.model in registry.names("models")
    return not of_paper and spec.semantics != "paper"


def measured_sites(
    config: RunConfig, source: BackboneSource, reporter: Reporter, *, measures: bool = True
) -> SiteCosts | None:
    """What the sites of a run's model cost, read or measured; `None` where no method of the run spares any.

    Raises:
        SitesNotMeasured: They were not measured before, and are not to be now.
        UsageError: They are to be measured, and there is no held-out training text.
        EnvironmentProblem: Model or data cannot be read.
    """
    if not any(spares(MethodSpec.parse(text), config) for text in config.methods):
        return None
    text = draw_site_text(config)
    if not text:
        if config.eligible == "auto":
            return None
        raise UsageError(
            f"Sites are measured on held-out training text, but {', '.join(config.tasks)} has none. Name a task that "
            f"has with --train-on, or let tokens skip everywhere with --eligible all."
        )
    about = {"version": VERSION, "backbone": source.fingerprint, "text": examples_fingerprint(text)}
    about |= {"chat_template": True} if config.chat_template else {}
    key = key_of(about)
    if key not in _measured:
        file = config.out / FOLDER / f"{key}.json"
        try:
            _measured[key] = SiteCosts.from_json(json.loads(file.read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError):  # the latter is told of where it is written
            if not measures:
                raise SitesNotMeasured from None
            found = _measure(config, source, text, reporter)
            reporter.line(f"eligible: {found.described()}")
            atomic.write_json(file, about | found.to_json())
            _measured[key] = found
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EnvironmentProblem(
                f"What the sites of a model cost is kept in a readable file, got {type(error).__name__} in "
                f"{str(file)!r}: {error}. Remove it: it is measured again."
            ) from error
    return _measured[key]


def key_entry(costs: SiteCosts | None, spec: MethodSpec, config: RunConfig) -> dict[str, Any]:
    """What a spec's trainings and evaluations depend on because of it; empty where nothing is spared."""
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
        return site_costs(model, batches, task=task)
