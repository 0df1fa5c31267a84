"""Tells which rows may stand in one table: rows of the same model, trained by one recipe and asked the same prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

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


@dataclass(frozen=True)
class Conditions:
    """What comparable rows of one task have in common; `None` for what a row does not say.

    Attributes:
        model: Name of the model, for the reader; the same model may be called differently elsewhere.
        backbone: Fingerprint of the model's files.
        recipe: How every method of the run was trained and calibrated: `steps 320, batch_size 32, ...`.
        task_version: Version of the task.
        documents: Number of documents asked.
        shots: Worked examples before each question.
        asked: Digest of the prompts.
        contents: Digest of the documents themselves, right answers included.
        definition: Digest of the task's definition and code: how it asks, generates and scores.
    """

    model: str | None = field(default=None, compare=False)
    backbone: str | None = None
    recipe: str | None = None
    task_version: str | None = None
    documents: int | None = None
    shots: int | None = None
    asked: str | None = None
    contents: str | None = None
    definition: str | None = None

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


_NUMBERS = ("documents", "shots")
_TEXTS = tuple(one.name for one in fields(Conditions) if one.name not in _NUMBERS)
_DIGESTS = ("backbone", "asked", "contents", "definition")


def conditions_of(row: Mapping[str, Any]) -> Conditions:
    """Return the conditions of a table's row. Rows of earlier versions say little; foreign rows may hold anything."""
    texts = {name: None if (value := row.get(name)) is None else str(value) for name in _TEXTS}
    numbers = {name: value if isinstance(value := row.get(name), int) else None for name in _NUMBERS}
    if texts["backbone"] is None:
        texts["backbone"] = texts["model"]
    return Conditions(**texts, **numbers)  # type: ignore[arg-type]


def differences(conditions: Iterable[Conditions]) -> dict[Conditions, str]:
    """Return for each of some conditions what tells it apart from the others; an empty text if there is only one."""
    every = {one: one.facts() for one in dict.fromkeys(conditions)}
    for name, usual in _USUAL.items():
        if any(name in facts for facts in every.values()):
            every = {one: ({name: usual} if one.recipe else {}) | facts for one, facts in every.items()}
    names = list(dict.fromkeys(name for facts in every.values() for name in facts))
    differing = [name for name in names if len({facts.get(name) for facts in every.values()}) > 1]
    spoken = [name for name in differing if name not in _DIGESTS]
    texts = {one: _text(facts, spoken) for one, facts in every.items()}
    if len(set(texts.values())) == len(texts):
        return texts
    return {one: _text(facts, differing) for one, facts in every.items()}


def _text(facts: Mapping[str, str], names: Iterable[str]) -> str:
    wanted = list(names)
    return ", ".join(facts[name] for name in wanted if name in facts) or (_UNKNOWN if wanted else "")
