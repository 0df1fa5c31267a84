"""The Hugging Face hub: finds out within seconds whether it answers, and downloads models.

The libraries retry a hub that does not answer for a minute per file. Here one request decides: without an answer the
libraries are told to read only their cache, and whatever is missing there is reported at once.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, SeveralProblems, message_of, one_line

TIMEOUT_S = 3.0
_REMEMBERED_S = 30.0  # long enough for a run that reads many data sets in a row, but a laptop may go online later
_AWAY = (502, 503, 504)  # how proxies report that the server behind them is not there
_SWITCH = "HF_HUB_OFFLINE"
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_remembered: dict[str, tuple[float, HubAnswer]] = {}


@dataclass(frozen=True)
class HubAnswer:
    """Whether the hub answers at its address or that of the mirror named by `HF_ENDPOINT`.

    Attributes:
        detail: What the hub said, or why it cannot be used.
        is_off: Whether `HF_HUB_OFFLINE` switches the hub off, so that nothing was asked.
    """

    endpoint: str
    answers: bool
    detail: str
    is_off: bool = False


@dataclass(frozen=True)
class Needed:
    """A model or data set that is needed from the hub.

    Attributes:
        local: The file of a data folder that could take its place; empty for a model.
    """

    kind: Literal["model", "data set"]
    name: str
    local: str = ""


class OutOfReach(EnvironmentProblem):
    """Models or data sets are not in the cache, and the hub cannot be asked for them.

    Args:
        reason: Why the cache could not be used, if a library said more than that they are not in it.
    """

    def __init__(self, needed: Iterable[Needed], answer: HubAnswer, reason: str = "") -> None:
        self.needed, self.answer, self.reason = tuple(dict.fromkeys(needed)), answer, reason
        state = f"is {answer.detail}" if answer.is_off else f"cannot be reached at {answer.endpoint} ({answer.detail})"
        what = ", ".join(f"the {one.kind} {one.name!r}" for one in self.needed)
        files = sorted({one.local for one in self.needed if one.local})
        steps = [
            "Name a folder in Hugging Face layout as the model (a gated model of the hub needs HF_TOKEN)."
            if any(one.kind == "model" for one in self.needed)
            else "",
            f"Set --data-dir or ADAPTIVE_BENCH_DATA to a folder with {', '.join(files)}." if files else "",
            "Or unset HF_HUB_OFFLINE." if answer.is_off else "Or connect to the hub, or set HF_ENDPOINT to a mirror.",
        ]
        super().__init__(
            f"{what[0].upper()}{what[1:]} cannot be read: the Hugging Face hub {state}, and its cache here has no copy"
            f"{f' ({reason})' if reason else ''}. {' '.join(filter(None, steps))}"
        )


def raise_together(errors: Sequence[AdaptiveBenchError]) -> None:
    """Raise some errors as one that names all that is out of reach in one sentence; do nothing if there are none."""
    every = [one for error in errors for one in (error.errors if isinstance(error, SeveralProblems) else (error,))]
    missing = [error for error in every if isinstance(error, OutOfReach)]
    found: list[AdaptiveBenchError] = []
    if missing:
        reasons = dict.fromkeys(one.reason for one in missing if one.reason)
        needed = (need for one in missing for need in one.needed)
        found.append(OutOfReach(needed, missing[-1].answer, "; ".join(reasons)))
    found += {str(error): error for error in every if not isinstance(error, OutOfReach)}.values()
    if len(found) == 1:
        raise found[0] from found[0].__cause__
    if found:
        raise SeveralProblems(found)


def ask() -> HubAnswer:
    """Find out whether the hub answers, within `TIMEOUT_S`; the answer is remembered for half a minute.

    With `HF_HUB_OFFLINE` nothing is asked. Any answer counts, even a refusal, unless a proxy says that the server is
    not there.
    """
    from huggingface_hub import constants

    endpoint = constants.ENDPOINT
    if constants.is_offline_mode():
        return HubAnswer(endpoint, False, "switched off by HF_HUB_OFFLINE", is_off=True)
    asked_s, answer = _remembered.get(endpoint, (0.0, None))
    if answer is None or time.monotonic() - asked_s > _REMEMBERED_S:
        answer = _request(endpoint)
        _remembered[endpoint] = time.monotonic(), answer
    return answer


def _request(endpoint: str) -> HubAnswer:
    found: list[HubAnswer] = []

    def request() -> None:
        from huggingface_hub import get_session  # with the proxies and certificates that the libraries will use

        try:
            status = int(get_session().head(endpoint, timeout=TIMEOUT_S).status_code)
            found.append(HubAnswer(endpoint, status not in _AWAY, f"status {status}"))
        except Exception as error:  # noqa: BLE001 - any error means that there is no answer, and is reported
            found.append(HubAnswer(endpoint, False, one_line(message_of(error), 200) or type(error).__name__))

    # In a thread: looking up a name may take longer than any timeout of a connection.
    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    return found[0] if found else HubAnswer(endpoint, False, f"no answer within {TIMEOUT_S:g} s")


@contextmanager
def hub_or_cache(*needed: Needed) -> Iterator[None]:
    """Let a library read what is `needed` from the hub within the block if the hub answers, else from its cache alone.

    Raises:
        OutOfReach: The hub cannot be asked, and the library fails.
    """
    answer = ask()
    if answer.answers:
        yield
        return
    try:
        with _offline():
            yield
    except AdaptiveBenchError:
        raise
    except (OSError, ValueError) as error:
        # `OutOfReach` itself says that a file is not in the cache; any other reason a library gives is passed on.
        known = isinstance(error, FileNotFoundError | ConnectionError)
        raise OutOfReach(needed, answer, "" if known else one_line(message_of(error), 200)) from error


@contextmanager
def _offline() -> Iterator[None]:
    """Keep the libraries from asking the hub, as `HF_HUB_OFFLINE` does from the start of a process."""
    from huggingface_hub import constants

    def put(value: bool, of_data_sets: bool) -> None:
        constants.HF_HUB_OFFLINE = value
        if (copy := sys.modules.get("datasets.config")) is not None:
            setattr(copy, _SWITCH, of_data_sets)

    before = constants.HF_HUB_OFFLINE
    before_of_data_sets = getattr(sys.modules.get("datasets.config"), _SWITCH, before)
    put(True, True)
    try:
        yield
    finally:
        put(before, before_of_data_sets)


def is_hub_id(name: str) -> bool:
    """Whether a name has the form of a hub repository and is no local folder."""
    return _HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def download(name: str) -> Path:
    """Download a saved model; return its folder in the cache."""
    from huggingface_hub import snapshot_download

    try:
        with hub_or_cache(Needed("model", name)):
            return Path(snapshot_download(name))
    except (OSError, ValueError, OutOfReach) as error:
        raise EnvironmentProblem(
            f"{name!r} is no folder here and cannot be loaded from the Hugging Face hub: "
            f"{message_of(error)[:300].rstrip('.')}. Check the name; a private model needs HF_TOKEN, and a run's model "
            f"is loaded with AdaptiveModel.load(run, method)."
        ) from error


def licence_of(location: str) -> str | None:
    """Return the licence that the card of a model in a folder or in the hub's cache names; `None` if there is none."""
    from huggingface_hub import metadata_load, try_to_load_from_cache

    # Of a hub's model it is `None`, or the mark of a file that the hub does not have, if the card is not in the cache.
    cached = try_to_load_from_cache(location, "README.md") if is_hub_id(location) else None
    try:
        licence = (metadata_load(cached if isinstance(cached, str) else Path(location, "README.md")) or {}).get(
            "license"
        )
    except (OSError, ValueError, yaml.YAMLError):  # no card, or an unreadable one
        return None
    return licence if isinstance(licence, str) else None
