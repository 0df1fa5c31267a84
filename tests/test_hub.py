"""One request tells whether the hub can be asked; where it cannot, all that is missing is told within seconds."""

import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from huggingface_hub import constants

from adaptive_bench import hub
from adaptive_bench.data import Source, read_rows
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.hub import HubAnswer, Needed, OutOfReach, ask, hub_or_cache, raise_together
from adaptive_bench.runs.backbone_source import find_backbone
from adaptive_bench.runs.model_checks import Findings

OFF = HubAnswer("https://mirror", False, "switched off by HF_HUB_OFFLINE", is_off=True)
AWAY = HubAnswer("https://mirror", False, "no answer within 3 s")


@pytest.fixture
def point_to(monkeypatch):
    """Let the libraries look for the hub at an address, with the network on and no cache."""

    def point(port):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
        files = "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", constants.ENDPOINT + files)
        monkeypatch.setattr(hub, "_remembered", {})
        return constants.ENDPOINT

    return point


@contextmanager
def server_of(status):
    """Answers with a status, and notes what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        do_GET = do_HEAD

        def log_message(self, *_): ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port, asked
        finally:
            server.shutdown()


def _closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_hub_that_never_answers_is_given_up_within_three_seconds(point_to):
    with socket.create_server(("127.0.0.1", 0)) as server:  # it takes connections and never says a word
        endpoint, start_s = point_to(server.getsockname()[1]), time.monotonic()
        found = ask()
        with pytest.raises(OutOfReach, match=r"'owner/silent'.*Name a folder"):
            find_backbone("owner/silent")
        with pytest.raises(OutOfReach, match=r"baber/piqa.*piqa/test\.jsonl"):
            read_rows(Source("baber/piqa"), "test")
        assert time.monotonic() - start_s < 4.0  # one wait for all three
    assert not found.answers and not found.is_off and found.endpoint == endpoint
    endpoint, start_s = point_to(_closed_port()), time.monotonic()  # one that refuses is told with its address
    with pytest.raises(OutOfReach, match=endpoint) as raised:
        find_backbone("owner/refused")
    assert time.monotonic() - start_s < 2.0
    assert "HF_ENDPOINT" in str(raised.value) and not raised.value.answer.is_off


@pytest.mark.parametrize(("status", "answers"), [(200, True), (404, True), (502, False)])
def test_any_answer_counts_but_that_of_a_proxy_with_nobody_behind_it(point_to, status, answers):
    with server_of(status) as (port, asked):
        endpoint = point_to(port)
        assert ask() == ask() == HubAnswer(endpoint, answers, f"status {status}")
    assert len(asked) == 1  # the mirror was asked, and once


def test_where_the_hub_answers_its_own_word_counts_and_switched_off_nothing_is_asked(point_to, monkeypatch):
    with server_of(404) as (port, asked):
        point_to(port)
        with pytest.raises(EnvironmentProblem, match=r"'owner/absent'") as raised:
            find_backbone("owner/absent")
    assert asked[-1] == "/owner/absent/resolve/main/config.json"
    assert not isinstance(raised.value, OutOfReach)
    with server_of(200) as (port, asked):
        point_to(port)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert ask().is_off
        with pytest.raises(OutOfReach, match="unset HF_HUB_OFFLINE"):
            find_backbone("owner/off")
        with pytest.raises(OutOfReach, match="unset HF_HUB_OFFLINE"):
            read_rows(Source("owner/off"), "test")
    assert asked == []


def test_libraries_are_offline_for_as_long_as_it_takes(point_to):
    import datasets

    point_to(_closed_port())
    before = datasets.config.HF_HUB_OFFLINE
    with hub_or_cache(Needed("model", "owner/cached")):
        assert constants.HF_HUB_OFFLINE and datasets.config.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE and before == datasets.config.HF_HUB_OFFLINE


def test_what_a_library_has_to_tell_is_told(monkeypatch):
    monkeypatch.setattr(hub, "ask", lambda: AWAY)
    with pytest.raises(OutOfReach, match="half a file"), hub_or_cache(Needed("model", "owner/broken")):
        raise ValueError("half a file")
    with pytest.raises(ZeroDivisionError), hub_or_cache(Needed("model", "owner/broken")):
        raise ZeroDivisionError


@pytest.mark.parametrize(("answer", "step"), [(OFF, "unset HF_HUB_OFFLINE"), (AWAY, "https://mirror")])
def test_model_and_data_sets_are_told_at_once_with_the_next_step(answer, step):
    model, piqa = Needed("model", "owner/model"), Source("baber/piqa").needed("test")
    training = Source("openai/gsm8k", configuration="main").needed("train")
    findings = Findings()
    for needed in ([model], [piqa], [training], [piqa]):
        with findings.checking():
            raise OutOfReach(needed, answer)
    with pytest.raises(OutOfReach) as raised:
        raise_together(findings.errors)
    text = str(raised.value)
    with pytest.raises(OutOfReach) as again:
        raise_together(findings.errors)
    assert raised.value.needed == (model, piqa, training) == again.value.needed
    for part in ("'owner/model'", "baber/piqa", "openai/gsm8k", "Name a folder", "--data-dir", "piqa/test.jsonl", step):
        assert text.count(part) == 1, text
