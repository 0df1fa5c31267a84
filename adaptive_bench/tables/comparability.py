"""Tells which rows may stand in one table, and joins the rows of several runs.

Rows are comparable if they are of the same model, trained by one recipe and asked the same prompts. They also name
the versions and devices they were made with: rounding depends on them, and may decide near-ties.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from adaptive_bench.store.keys import TABLES
from adaptive_bench.store.runs import ending_of

_UNKNOWN = "of an earlier version"
# What these settings are in a recipe that does not name them.
_USUAL = {
    "temperature": "greedy",
    "quantize": "not quantized",
    "stop_strings": "the task's stop strings",
    "max_new_tokens": "the task's length of answers",
    "system_prompt": "no system prompt",
    "enable_thinking": "thinking as the template says",
    "skip_overlong": "all documents",
}
FACTS = ("adaptive-bench", "torch", "transformers", "lm-eval", "device", "device_name")
_SEPARATOR = "; "
_STRANGE = re.compile(r"[^A-Za-z0-9_ .,+@()\-:]+")  # characters of a device name that boards do not accept
QUICK_NOTE = "Quick: not to be quoted"  # how the warning of a quick run begins
Row = dict[str, Any]
_MEANING = ("method", "semantics", "task", "metric", "axis", "phase", "level", "projected_shape")
# Runs dispute over the first 3 parts of a row's meaning (conditions, method, semantics), so that either all rows of a
# method name their run or none does.
_DISPUTED = 3
# Columns that may differ whenever something is measured again, or passed on as an entry.
_OF_MEASURING = ("seconds", "made_with", "evidence", "checked", "external")


@dataclass(frozen=True)
class Conditions:
    """What comparable rows of one task have in common; `None` for what a row does not say.

    Attributes:
        model: Name of the model, for the reader; the same model may be called differently elsewhere.
        recipe: How every method of the run was trained and calibrated: `steps 320, batch_size 32, ...`.
    """

    model: str | None = field(default=None, compare=False)
    backbone: str | None = None  # fingerprint of the model's files
    recipe: str | None = None
    task_version: str | None = None  # version of the task
    documents: int | None = None  # number of documents asked
    shots: int | None = None  # worked examples before each question
    asked: str | None = None  # digest of the prompts
    contents: str | None = None  # digest of the documents themselves, right answers included
    definition: str | None = None  # digest of the task's definition and code: how it asks, generates and scores

    def facts(self) -> dict[str, str]:
        """Return the conditions in words, by name; digests last."""
        found = {
            "model": f"model {self.model}",
            "documents": f"{self.documents} document{'' if self.documents == 1 else 's'}",
            "shots": f"{self.shots} shot{'' if self.shots == 1 else 's'}",
            "task_version": f"task version {self.task_version}",
        }
        said = {name: text for name, text in found.items() if getattr(self, name) is not None}
        settings = self.recipe.split(", ") if self.recipe else []
        said |= {setting.partition(" ")[0]: setting.replace("_", " ") for setting in settings}
        said |= {} if self.backbone is None else {"backbone": f"weights {self.backbone[-8:]}"}
        said |= {} if self.asked is None else {"asked": f"prompts {self.asked[:8]}"}
        said |= {} if self.contents is None else {"contents": f"contents {self.contents[:8]}"}
        return said | ({} if self.definition is None else {"definition": f"task definition {self.definition[:8]}"})


_DIGESTS = ("backbone", "asked", "contents", "definition")


def conditions_of(row: Mapping[str, Any]) -> Conditions:
    """Return the conditions of a table's row. Rows of earlier versions say little."""
    found = Conditions(**{one.name: row.get(one.name) for one in fields(Conditions)})
    # Names are not compared, so without a fingerprint the name has to stand for the weights.
    return found if found.backbone is not None else replace(found, backbone=found.model)


def differences(conditions: Iterable[Conditions]) -> dict[Conditions, str]:
    """Return for each of some conditions what tells it apart from the others; an empty text if there is only one."""
    every = {one: one.facts() for one in dict.fromkeys(conditions)}
    for name, usual in _USUAL.items():
        if any(name in facts for facts in every.values()):
            # The recipe does not name usual settings: where one differs, the others have to say theirs.
            every = {one: ({name: usual} if one.recipe else {}) | facts for one, facts in every.items()}
    names = list(dict.fromkeys(name for facts in every.values() for name in facts))
    differing = [name for name in names if len({facts.get(name) for facts in every.values()}) > 1]
    # Digests say nothing to a reader: they are shown only if words do not tell the conditions apart.
    spoken = [name for name in differing if name not in _DIGESTS]
    texts = {one: _text(facts, spoken) for one, facts in every.items()}
    if len(set(texts.values())) == len(texts):
        return texts
    return {one: _text(facts, differing) for one, facts in every.items()}


def _text(facts: Mapping[str, str], names: Iterable[str]) -> str:
    wanted = list(names)
    return ", ".join(facts[name] for name in wanted if name in facts) or (_UNKNOWN if wanted else "")


def made_with(about: Iterable[Mapping[str, Any]]) -> str:
    """Return a row's column `made_with` from the environments of its records, each combination once."""
    texts = (", ".join(f"{name} {one.get(name, 'unknown')}" for name in FACTS) for one in about)
    return _SEPARATOR.join(sorted({_STRANGE.sub(" ", text) for text in texts}))


def environments(columns: Iterable[str | None]) -> list[str]:
    """Return the combinations that some rows name; rows of earlier versions name none if all were alike."""
    return sorted({one for text in columns if text for one in text.split(_SEPARATOR)})


def both(columns: Iterable[str | None]) -> str | None:
    """Return the column `made_with` of one row that stands for several."""
    return _SEPARATOR.join(environments(columns)) or None


def joined(tables_by_folder: Mapping[Path, Sequence[Row]]) -> list[Row]:
    """Join the rows of several tables; a row that several runs have under the same conditions is kept once. If two runs
    disagree on a method's scores, all its rows stay, with the end of the run's name in `run`. If they disagree on the
    dense model, the rows of other methods name in `beside` the run whose dense model they were measured beside.
    """
    # The end of each run's name, its seeds and key; whole paths if two names end alike.
    ends = {folder: "-".join(folder.name.split("-")[-2:]) for folder in tables_by_folder}
    names = ends if len(set(ends.values())) == len(ends) else {folder: str(folder) for folder in ends}
    answers: dict[tuple[Any, ...], dict[Path, Row]] = defaultdict(dict)
    for folder, rows in tables_by_folder.items():
        for row in rows:
            answers[(conditions_of(row), *(row.get(key) for key in _MEANING))][folder] = row
    disputed = {
        meaning[:_DISPUTED]
        for meaning, by_folder in answers.items()
        if len(by_folder) > 1 and len({_untimed(row) for row in by_folder.values()}) > 1
    }
    without_one_dense = {conditions for conditions, method, *_ in disputed if method == "dense"}
    result: list[Row] = []
    for meaning, by_folder in answers.items():
        if meaning[:_DISPUTED] in disputed:
            result += [row | {"run": names[folder]} for folder, row in by_folder.items()]
        else:
            folder, row = next(iter(by_folder.items()))
            row = row | {"beside": names[folder]} if meaning[0] in without_one_dense else row
            made = both(one.get("made_with") for one in by_folder.values())
            result.append(row if made == row.get("made_with") else row | {"made_with": made})
    return result


def not_to_be_quoted(folders: Iterable[Path]) -> list[str]:
    """Return a sentence for each run that was only a first look (`run --quick`)."""
    found = []
    for folder in folders:
        warnings = ending_of(folder).get("warnings", [])
        found += [f"{folder.name}: {text}" for text in warnings if str(text).startswith(QUICK_NOTE)]
    return found


def made_by_other_rules(folders: Iterable[Path]) -> list[str]:
    """Return a sentence for each run whose table was matched and tested by another version of the rules than this
    package has (`store.keys.TABLES`).
    """
    found = []
    for folder in folders:
        version = ending_of(folder).get("tables", 1)  # tables before the first version have none
        if version != TABLES:
            found.append(
                f"The table of {folder.name} was made by version {version} of the rules for matching, intervals and "
                f"tests, and this is version {TABLES}: `adaptive-bench run --config {folder / 'config.yaml'} "
                f"--table-only` makes it again from its records."
            )
    return found


def _untimed(row: Row) -> str:
    return json.dumps(
        {key: value for key, value in row.items() if key not in _OF_MEASURING}, sort_keys=True, default=str
    )
