"""Steps cut by memory: what fits, what is padding, and that nothing but rounding changes."""

import json

import pytest
import torch

from adaptive_bench import free_memory
from adaptive_bench.free_memory import free_on
from adaptive_bench.training import micro_batches
from adaptive_bench.training.cost import dry_step, without_values
from adaptive_bench.training.encoding import EncodedExample
from adaptive_bench.training.loop import train
from adaptive_bench.training.micro_batches import MicroBatches, measured_footprint, rough_footprint


def sequence(tokens):
    return EncodedExample(tuple(range(tokens)), tokens // 2)


def test_a_step_that_takes_little_stays_as_it_is(model):
    batch = [sequence(length) for length in (5, 60, 9)]
    assert MicroBatches(model, usable=1 << 40).cut(batch) == [batch]


def test_pieces_fit_and_hold_little_padding(model, monkeypatch):
    monkeypatch.setattr(micro_batches, "_WHOLE_BYTES", 1)
    lengths = [11, 60, 9, 58, 33, 12, 61, 35, 10, 31, 59, 11]
    footprint = measured_footprint(model)
    usable = int(footprint.of(2, 61, 62))
    pieces = MicroBatches(model, usable).cut([sequence(length) for length in lengths])
    found = [[len(one.token_ids) for one in piece] for piece in pieces]
    assert [length for piece in found for length in piece] == sorted(lengths, reverse=True)
    assert sum(len(piece) * piece[0] for piece in found) <= sum(lengths) / 0.9
    for piece in pieces:
        labels = sum(one.loss_tokens for one in piece)
        assert footprint.of(len(piece), len(piece[0].token_ids), labels) <= usable
    assert MicroBatches(model, usable=1).cut([sequence(9), sequence(12)]) == [[sequence(12)], [sequence(9)]]


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        *((spec, 1e-5) for spec in ("dense", "flexidepth", "calm", "layerskip", "random_skip[trained=true]")),
        ("gateskip", 3e-3),  # it ranks the tokens of a batch
    ],
)
def test_losses_and_gradients_are_those_of_the_whole_step(
    spec, change, model_of, examples, tokenizer, recipe, tmp_path, monkeypatch
):
    recipe = recipe.model_copy(update={"steps": 2})  # further on a rounding may turn a decision
    lines = {}
    for name, whole, usable in (("whole", 1 << 30, 1 << 40), ("cut", 1, 200_000)):
        monkeypatch.setattr(micro_batches, "_WHOLE_BYTES", whole)
        monkeypatch.setattr(micro_batches, "usable_bytes", lambda _, usable=usable: usable)
        train(model_of(spec, layers=4), examples, tokenizer, recipe, seed=1, folder=tmp_path / name)
        lines[name] = [json.loads(line) for line in (tmp_path / name / "train.jsonl").read_text().splitlines()]
    for ours, theirs in zip(lines["cut"], lines["whole"], strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=change)
        assert ours["terms"] == pytest.approx(theirs["terms"], rel=change, abs=1e-7)
        assert ours["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=10 * change)


@pytest.mark.parametrize("spec", ["dense", "gateskip", "calm", "mod"])
def test_what_a_step_takes_is_foreseen(spec, model_of):
    """In proportion, from short sequences; the rough one is never less."""
    model = model_of(spec, layers=4)
    empty, footprint = without_values(model), measured_footprint(model)
    rough = rough_footprint(model.backbone, 4)
    for rows, length, labels in ((1, 60, 30), (3, 40, 20), (4, 16, 16)):
        held = dry_step(empty, rows, length, labels, watched=True).peak_bytes
        assert footprint.of(rows, length, rows * labels) == pytest.approx(held, rel=0.25)
        assert rough.of(rows, length, rows * labels) > held


def test_what_autograd_holds_is_held_without_values(model_of):
    """Held against what torch itself keeps for the backward pass of the real step."""
    model, ids = model_of("gateskip", layers=4), torch.arange(3, 63)[None]
    stored = {}

    def note(tensor):
        stored[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    model.begin_step(375, 1000)
    own = {each.untyped_storage().data_ptr() for each in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = model(ids, labels=ids, return_logits=False).loss
    kept = sum(size for place, size in stored.items() if place not in own)
    loss.backward()
    held = dry_step(without_values(model), 1, 60, 59, watched=True).peak_bytes
    assert kept < held < 1.6 * kept


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({"proc/meminfo": "MemTotal: 900 kB\nMemAvailable: 500 kB\n"}, 500 * 1024),
        (
            {
                "proc/meminfo": "MemAvailable: 500 kB\n",
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "1000\n",
                "sys/fs/cgroup/a/memory.current": "700\n",
                "sys/fs/cgroup/a/memory.stat": "anon 3\ninactive_file 50\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
            },
            350,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/x\n2:memory,hugetlb:/job\n",
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "4000\n",
                "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "1000\n",
                "sys/fs/cgroup/memory/job/memory.stat": "total_inactive_file 10\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            3010,
        ),
        ({}, None),
    ],
)
def test_what_is_free_follows_from_machine_and_cgroups(files, free, tmp_path, monkeypatch):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_on(torch.device("cpu"), tmp_path) == free
    monkeypatch.setattr(free_memory, "_workers", 2)
    usable = free_memory.usable_bytes(torch.device("cpu"), tmp_path)
    assert usable == (None if free is None else int(0.35 * free))
