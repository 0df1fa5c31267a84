"""Exported decisions are those of the measured point, and another engine that replays them gets the same logits."""

import json

import numpy as np
import pytest
import torch
from torch import Tensor

from adaptive_bench.backbone import Site
from adaptive_bench.config_file import load_config
from adaptive_bench.method import Decision
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.runs import run
from adaptive_bench.runs.outcome.trained import find_checkpoint
from adaptive_bench.store.decision_files import read
from adaptive_bench.testing.replay import replayed_logits

METHODS = "mod,random_skip,gateskip,gateskip@paper"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    values = {"methods": METHODS, "tasks": "nano_math", "out": tmp_path_factory.mktemp("decisions"), "device": "cpu"}
    return run(load_config("smoke", values | {"match_on": "tokens", "levels": [0.1]}), jobs=1).folder


def _exported(command, folder, tmp_path, method, form="jsonl", *more):
    path = tmp_path / f"decisions.{form}"
    result = command("export-decisions", str(folder), "--method", method, "--level", "0.2", "-o", str(path), *more)
    assert result.exit_code == 0, result.stderr
    return result, *read(path)


@pytest.mark.parametrize("method", ["mod", "random_skip"])
def test_the_plain_model_with_the_file_gives_the_logits_of_the_engine(command, folder, tmp_path, method, monkeypatch):
    _, header, documents = _exported(command, folder, tmp_path, method)
    assert header["complete"] and len(documents) == 4
    assert header["kv_policy"] == {"mod": "evict", "random_skip": "recompute"}[method]
    model = AdaptiveModel.from_pretrained(find_checkpoint(folder, method), method, calibration=None).eval()
    one = documents[0]
    assert not one.keep.all()
    factors = torch.from_numpy(one.keep).float() * (1 if one.scale is None else torch.from_numpy(one.scale))
    decisions = [
        (Site(layer, branch), Decision(scale=factors[None, :, column, None]))
        for column, (layer, branch) in enumerate(header["sites"])
    ]
    ids = torch.tensor([one.token_ids])
    # What `evict` hides from other tokens takes a mask of the replay's own; the rest of the rule is the same.
    monkeypatch.setattr(type(model.method), "kv_policy", "recompute")
    with torch.inference_mode():
        replayed = replayed_logits(model.backbone_model, ids, decisions)
        model.dial = header["dial"]
        own = _with_masks(model, ids, one, header)
    torch.testing.assert_close(replayed, own, atol=1e-4, rtol=1e-4)


def _with_masks(model: AdaptiveModel, ids: Tensor, one, header) -> Tensor:
    """Logits of the engine with the decisions of the file in place of the method's."""
    keep = {(layer, branch): column for column, (layer, branch) in enumerate(header["sites"])}

    def decide(view):
        column = keep[view.site.layer, view.site.branch]
        scale = None if one.scale is None else torch.from_numpy(one.scale)[None, :, column, None]
        return Decision(torch.from_numpy(one.keep)[None, :, column], scale)

    model.method.decide = decide
    return model(ids).logits


@pytest.mark.parametrize("method", ["mod", "random_skip", "gateskip"])
def test_what_prompts_execute_is_what_the_measured_point_counted(command, folder, tmp_path, method):
    _, header, documents = _exported(command, folder, tmp_path, method)
    record = folder.parent.parent / "records" / header["record"]
    point = json.loads((record / f"{header['asked']:g}.json").read_text())
    executed = sum(map(sum, point["report"]["counts"]["prefill"]["executed"]))
    branches = 2 if header["sites"][0][1] == "layer" else 1
    assert point["dial"] == header["dial"] and executed > 0
    assert branches * sum(int(one.keep[: one.prompt_tokens].sum()) for one in documents) == executed


def test_both_forms_hold_the_same(command, folder, tmp_path):
    _, header, documents = _exported(command, folder, tmp_path, "mod")
    result, other, tensors = _exported(command, folder, tmp_path, "mod", "safetensors", "--docs", "2")
    assert "2 documents of nano_math" in result.stdout
    assert other == header and len(tensors) == 2
    for one, same in zip(documents, tensors, strict=False):
        assert (one.doc, list(one.token_ids), one.prompt_tokens) == (same.doc, list(same.token_ids), same.prompt_tokens)
        assert (one.keep == same.keep).all() and np.array_equal(one.scale, same.scale)


def test_gates_for_each_feature_are_said_to_be_missing(command, folder, tmp_path):
    result, header, _ = _exported(command, folder, tmp_path, "gateskip")
    assert header["complete"] is False and "A replay needs its weights" in result.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--method", "gateskip@paper"), "earlier text alone"),
        (("--method", "mod", "--task", "nano_qa"), "--task"),
        (("--method", "calm"), "--method takes specs of the run"),
        (("--method", "mod", "-o", "decisions.safetensor"), "ends in one of .jsonl, .safetensors, got"),
    ],
)
def test_what_is_no_mask_of_a_measured_text_is_refused(command, folder, asked, said):
    result = command("export-decisions", str(folder), *asked)
    assert result.exit_code == 2 and said in result.stderr.replace("\n", " ")
