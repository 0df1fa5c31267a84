"""Decisions as files that other engines read: which token executed which branch, document by document.

JSON lines (`.jsonl`): a header, then one object for each document. Safetensors (`.safetensors`): the header is the
metadata's `header`, and each document has tensors of its own. Neither runs code when it is read. docs/decisions.md
says what every key means.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from adaptive_bench.errors import EnvironmentProblem, message_of

FORMAT, VERSION = "adaptive-bench decisions", 1
_TENSORS = ("token_ids", "keep", "scale")


@dataclass(frozen=True)
class DocumentDecisions:
    """What a method decided for one text.

    Attributes:
        doc: Index of the document in the evaluated split.
        token_ids: S tokens, those of the prompt first.
        prompt_tokens: How many of them are the prompt's.
        keep: [S, sites] boolean: whether the token executes the branch; sites in the order of the header.
        scale: [S, sites] what the branch's output is multiplied by for a token that executes, where that is one number
            and not everywhere 1; else `None`.
    """

    doc: int
    token_ids: Sequence[int]
    prompt_tokens: int
    keep: np.ndarray
    scale: np.ndarray | None = None


def as_json_lines(header: Mapping[str, Any], documents: Iterable[DocumentDecisions]) -> str:
    """A header line, then a line for each document: `keep` has a text of `0` and `1` a token, a character a site."""
    lines = [json.dumps({"format": FORMAT, "version": VERSION, **header})]
    for one in documents:
        values: dict[str, Any] = {"doc": one.doc, "prompt_tokens": one.prompt_tokens}
        values["token_ids"] = list(map(int, one.token_ids))
        values["keep"] = ["".join("1" if kept else "0" for kept in row) for row in one.keep.tolist()]
        if one.scale is not None:
            values["scale"] = one.scale.astype(float).tolist()
        lines.append(json.dumps(values, separators=(",", ":"), allow_nan=False))
    return "\n".join(lines) + "\n"


def as_safetensors(header: Mapping[str, Any], documents: Iterable[DocumentDecisions]) -> bytes:
    """Tensors `<doc>.token_ids` [S] int64, `<doc>.keep` [S, sites] bool and `<doc>.scale` [S, sites] float32."""
    tensors: dict[str, np.ndarray] = {}
    prompts: dict[str, int] = {}
    for one in documents:
        prompts[str(one.doc)] = one.prompt_tokens
        tensors[f"{one.doc}.token_ids"] = np.asarray(one.token_ids, dtype=np.int64)
        tensors[f"{one.doc}.keep"] = np.ascontiguousarray(one.keep, dtype=bool)
        if one.scale is not None:
            tensors[f"{one.doc}.scale"] = np.ascontiguousarray(one.scale, dtype=np.float32)
    about = {"format": FORMAT, "version": VERSION, **header, "prompt_tokens": prompts}
    return save(tensors, metadata={"header": json.dumps(about)})


def read(path: Path) -> tuple[dict[str, Any], list[DocumentDecisions]]:
    """Header and documents of a file of either form.

    Raises:
        EnvironmentProblem: It is none, is damaged, or of a newer version.
    """
    try:
        header, found = (_safetensors if path.suffix == ".safetensors" else _json_lines)(path)
        known = header["format"] == FORMAT and header["version"] <= VERSION
    except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
        raise _not_one(path, f"{type(error).__name__}: {message_of(error)}") from error
    if not known:
        raise _not_one(path, f"its format is {header['format']!r}, version {header['version']}")
    return header, found


def _json_lines(path: Path) -> tuple[dict[str, Any], list[DocumentDecisions]]:
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    documents = []
    for line in rest:
        one = json.loads(line)
        keep = np.array([[letter == "1" for letter in row] for row in one["keep"]], dtype=bool)
        scale = np.array(one["scale"], dtype=np.float32) if "scale" in one else None
        documents.append(DocumentDecisions(one["doc"], one["token_ids"], one["prompt_tokens"], keep, scale))
    return json.loads(first), documents


def _safetensors(path: Path) -> tuple[dict[str, Any], list[DocumentDecisions]]:
    with safe_open(path, "np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        header = json.loads((file.metadata() or {})["header"])
    prompts = header.pop("prompt_tokens")
    documents = []
    for doc, prompt_tokens in prompts.items():
        token_ids, keep, scale = (tensors.get(f"{doc}.{name}") for name in _TENSORS)
        if token_ids is None or keep is None:
            raise ValueError(f"document {doc} lacks its tokens or decisions")
        documents.append(DocumentDecisions(int(doc), token_ids.tolist(), prompt_tokens, keep, scale))
    return header, documents


def _not_one(path: Path, why: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"A file of decisions is what `adaptive-bench export-decisions` writes, but {str(path)!r} cannot be read: "
        f"{why}. Export it again."
    )
