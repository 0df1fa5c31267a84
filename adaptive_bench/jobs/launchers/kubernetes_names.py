"""What the API server of Kubernetes takes as a name or a value, and names of ours made fit for it.

A schema calls these texts and no more; the server refuses most texts. Source: the functions `IsDNS1123Label`,
`IsDNS1123Subdomain`, `IsQualifiedName`, `IsValidLabelValue`, `IsEnvVarName`, `IsConfigMapKey` of
k8s.io/apimachinery/pkg/util/validation, `ParseQuantity` of .../pkg/api/resource, and `ValidateJob` of
k8s.io/kubernetes/pkg/apis/batch/validation.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated

from pydantic import AfterValidator

LONGEST_LABEL = 63
_LONGEST_SUBDOMAIN = 253
_RANDOM = 5  # characters that the server puts behind a `generateName`
_DIGEST = 8
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_WORD = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"


def _text(rule: str, pattern: str, longest: int = _LONGEST_SUBDOMAIN) -> AfterValidator:
    def check(value: str) -> str:
        if len(value) > longest or not re.fullmatch(pattern, value, re.ASCII):
            raise ValueError(rule)
        return value

    return AfterValidator(check)


def _prefixed(value: str) -> str:
    prefix, slash, name = value.rpartition("/")
    fits = bool(re.fullmatch(_SUBDOMAIN, prefix)) and len(prefix) <= _LONGEST_SUBDOMAIN if slash else not prefix
    if not fits or len(name) > LONGEST_LABEL or not re.fullmatch(_WORD, name):
        raise ValueError(f"a key is `name` or `domain/name`, the name of at most {LONGEST_LABEL} letters, digits, -_.")
    return value


_named = "lower-case letters, digits and '-', with a letter or digit at both ends"
Label = Annotated[str, _text(f"it takes at most {LONGEST_LABEL} {_named}", _LABEL, LONGEST_LABEL)]
Subdomain = Annotated[str, _text(f"it takes {_named}, and '.' between such parts", _SUBDOMAIN)]
LabelKey = Annotated[str, AfterValidator(_prefixed)]
LabelValue = Annotated[
    str, _text(f"it takes at most {LONGEST_LABEL} letters, digits and -_. inside", rf"({_WORD})?", LONGEST_LABEL)
]
EnvironmentName = Annotated[
    str,
    _text("a variable's name takes letters, digits and '_', with no digit first", r"[A-Za-z_][A-Za-z0-9_]*", 10**4),
]
SecretKey = Annotated[str, _text("a key of a secret takes letters, digits and -_.", r"(?!\.\.?$|\.\.)[-._a-zA-Z0-9]+")]
Quantity = Annotated[
    str,
    _text(
        "a quantity is a number above 0 with a unit such as Mi, Gi, M, G",
        r"(?=.*[1-9])(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[kMGTPE]|[eE][+-]?\d{1,2})?",
        40,
    ),
]
Image = Annotated[str, _text("an image has a name without blanks", r"\S+", 1000)]
Folder = Annotated[str, _text("a volume is mounted at an absolute path without ':'", r"/[^:\0]*", 4096)]


def job_prefix(run: str, place: str, completions: int) -> str:
    """The beginning of a Job's name (`generateName`) for a run: readable, its own, and short enough for all that is
    made of it. Pods of an Indexed Job get the host name `<job>-<index>`, which is one DNS label; the name itself is the
    value of the label `job-name`.

    Args:
        run: The run's name.
        place: Its folder, which tells runs of one name apart.
        completions: Of the Job.
    """
    digest = hashlib.sha256(place.encode()).hexdigest()[:_DIGEST]
    room = LONGEST_LABEL - len(f"-{max(0, completions - 1)}") - _RANDOM - len(f"ab--{digest}-")
    return "-".join([*filter(None, ("ab", as_label(run, room), digest)), ""])


def as_label(text: str, longest: int = LONGEST_LABEL) -> str:
    """As much of a text as a DNS label holds; empty if nothing of it can be kept."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:longest].strip("-")


def as_label_value(text: str) -> str:
    """As much of a text as the value of a label holds, capitals and underscores included."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:LONGEST_LABEL].strip("-_.")
