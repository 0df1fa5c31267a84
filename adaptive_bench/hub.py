"""Whether the Hugging Face hub can be asked, found out once and within seconds, and what to do where it cannot.

The libraries try a hub that does not answer again and again, a minute for each file. Here one request decides: without
an answer they are told to read their cache alone, and what is not there is named at once.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, SeveralProblems, message_of, one_line

TIMEOUT_S = 3.0
_REMEMBERED_S = 30.0  # a run asks for a model and many data sets in a row; a laptop may go online in between
_AWAY = (502, 503, 504)  # what proxies say for a server behind them that is not there
_SWITCH = "HF_HUB_OFFLINE"
_remembered: dict[str, tuple[float, HubAnswer]] = {}


@dataclass(frozen=True)
class HubAnswer:
    """What came back from the hub.

    Attributes:
        endpoint: Address that was asked: the hub, or the mirror that `HF_ENDPOINT` names.
        answers: Whether it can be used; not so where the environment switches it off.
        detail: What it said, or why it cannot be used.
        is_off: Whether `HF_HUB_OFFLINE` switches it off, so that nothing was asked.
    """

    endpoint: str
    answers: bool
    detail: str
    is_off: bool = False


@dataclass(frozen=True)
class Needed:
    """Something of the hub.

    Attributes:
        kind: What it is.
        name: Its id on the hub.
        local: The file of a data folder that would do instead; empty for a model.
    """

    kind: Literal["model", "data set"]
    name: str
    local: str = ""


class OutOfReach(EnvironmentProblem):
    """Models and data sets that are neither here nor, since the hub cannot be asked, there.

    Args:
        needed: All of them.
        answer: Of the hub.
        reason: Why the cache could not serve instead, where a library said more than that they are not in it.
    """

    def __init__(self, needed: Iterable[Needed], answer: HubAnswer, reason: str = "") -> None:
        self.needed, self.answer, self.reason = tuple(dict.fromkeys(needed)), answer, reason
        state = f"is {answer.detail}" if answer.is_off else f"cannot be reached at {answer.endpoint} ({answer.detail})"
        what = ", ".join(f"the {one.kind} {one.name!r}" for one in self.needed)
        files = sorted({one.local for one in self.needed if one.local})
        steps = [
            "Name a folder in Hugging Face layout as the model (of the hub a gated one needs HF_TOKEN)."
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
    """End here if there are any.

    Raises:
        AdaptiveBenchError: The one error, or several as one, of which those of what is out of reach are one sentence.
    """
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
    """Whether the hub answers, known after `TIMEOUT_S` at the latest and remembered for half a minute.

    With `HF_HUB_OFFLINE` nothing is asked. Any answer counts, even a refusal, unless it says that nobody is there.
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
        except Exception as error:  # noqa: BLE001 - whatever it is, it keeps the answer away and is told
            found.append(HubAnswer(endpoint, False, one_line(message_of(error), 200) or type(error).__name__))

    # In a thread: looking up a name may take longer than any timeout of a connection.
    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    return found[0] if found else HubAnswer(endpoint, False, f"no answer within {TIMEOUT_S:g} s")


@contextmanager
def hub_or_cache(*needed: Needed) -> Iterator[None]:
    """Let a library read from the hub where that answers, else from its cache alone.

    Args:
        needed: What is read.

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
        # That a file is not in the cache is said in other words; anything else a library has to tell is passed on.
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
