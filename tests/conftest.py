"""Shared by all tests: nothing here reaches the network, and one test's environment never leaks into another.

The tiny models have random weights large enough (and norms uneven enough) that a skipped branch, a wrong position or a
misplaced norm moves the logits by far more than any tolerance.
"""

import atexit
import gc
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# Before any test module imports a library that reads them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_NUM_THREADS"] = "1"  # tiny matrices: more threads only get in each other's way
os.environ["ADAPTIVE_BENCH_PRODUCTS"] = "fixed"  # rounding is the same in every run; nothing is timed
# Real data and models that some tests are run on, and skipped without: beside the project, unless they lie elsewhere.
os.environ["ADAPTIVE_BENCH_SHARED"] = os.environ.get("ADAPTIVE_BENCH_SHARED") or str(
    Path(__file__).parents[1].parent / "shared"
)
# SmolLM2-135M-Instruct in Hugging Face layout, which tests marked `real` read.
SMOLLM2 = Path(os.environ.get("ADAPTIVE_BENCH_SMOLLM2") or Path(__file__).parents[1] / "build" / "smollm2")

# What is measured or listed once for each machine, such as its speeds, is kept below this folder: one for all tests,
# and none of it is a user's. Processes that share the tests share it too.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="adaptive-bench-tests-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

FAMILY_CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 6},
    # biases; windows in layers 2, 3
    "qwen2": {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
    "qwen3": {"head_dim": 16, "num_hidden_layers": 3},  # norms of q and k; heads wider than the hidden size
    "gemma2": {"head_dim": 16, "sliding_window": 6, "query_pre_attn_scalar": 8, "num_hidden_layers": 3},
    "gemma3_text": {"head_dim": 16, "sliding_window": 6, "sliding_window_pattern": 2, "query_pre_attn_scalar": 8},
    "granite": {
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.2,
        "logits_scaling": 0.5,
    },
    "olmo2": {},  # norms after branches alone, norms over the whole width of q and k
    "phi3": {  # half of each head is turned; head size 8
        "sliding_window": 6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    },
    "smollm3": {"no_rope_layer_interval": 2},  # no rotary positions in layers 1, 3
}
GRID = (0.1, 0.3, 0.45)  # shares of skipped tokens that shared models are calibrated for


def pytest_collection_modifyitems(items):
    """Files with slow tests come first: one of them that was left to the end would keep a single worker busy."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish():
    """Leave what is loaded by now, half a million objects that stay, out of every later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_inherited_data_folder(monkeypatch):
    monkeypatch.delenv("ADAPTIVE_BENCH_DATA", raising=False)


def _make_backbone(family, attention=None, **changes):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from adaptive_bench.testing.subject import SIZES

    torch.set_num_threads(1)
    attention = attention or ("eager" if family == "gemma2" else "sdpa")
    config = AutoConfig.for_model(family, **(SIZES | FAMILY_CONFIGS[family] | changes))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    model.generation_config.eos_token_id = None  # Hugging Face generation runs to its limit
    return model.eval()


_shared_backbone = cache(_make_backbone)


def _random_text(rows, length, seed=0):
    import torch

    from adaptive_bench.testing.subject import FIRST_WORD, VOCABULARY

    return torch.randint(FIRST_WORD, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def _make_model(spec, family="llama", attention=None, *, seed=1, backbone=None):
    import torch

    from adaptive_bench.model import AdaptiveModel

    model = AdaptiveModel.build(backbone or _shared_backbone(family, attention), spec, seed=seed).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.method.parameters():  # as after training: scores differ from token to token
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    if model.needs_calibration:
        ids = _random_text(8, 30, seed=99)
        batch = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "continuation_mask": torch.arange(30).expand_as(ids) >= 15,
        }
        model.calibrate([batch], GRID)
    return model


_shared_model = cache(_make_model)


@pytest.fixture(scope="session")
def random_text():
    """`random_text(rows, length, seed)`: token ids [rows, length] without special tokens."""
    return _random_text


@pytest.fixture(scope="session")
def make_backbone():
    """`make_backbone(family, attention, **config)`: a new tiny Hugging Face model, the same one each time."""
    return _make_backbone


@pytest.fixture(scope="session")
def shared_backbone():
    """`shared_backbone(family, attention)`: as `make_backbone`, made once; tests leave its weights alone."""
    return _shared_backbone


@pytest.fixture(scope="session")
def make_model():
    """`make_model(spec, family, attention, seed=, backbone=)`: spread-out decisions, calibrated for `GRID`, eval()."""
    return _make_model


@pytest.fixture(scope="session")
def shared_model():
    """`shared_model(spec, family, attention)`: as `make_model`, made once; dial, executor and ledger come reset."""

    def get(spec, family="llama", attention=None):
        model = _shared_model(spec, family, attention)
        model.dial = model.method.dial.skip_nothing
        model.executor = None
        model.reset_ledger()
        return model.eval()

    return get


@pytest.fixture
def trainee(make_model, make_backbone):
    """`trainee(spec, family, step=, total_steps=)`: a model of its own in `train()`, at a step of its schedules."""

    def make(spec, family="llama", step=10, total_steps=10):
        model = make_model(spec, backbone=make_backbone(family))
        model.begin_step(step, total_steps)
        return model.train()

    return make


@pytest.fixture
def training_batch():
    """Ids, mask and labels [3, 10] of a right-padded training batch with masked prompts: 21 real tokens."""
    import torch

    ids = _random_text(3, 10)
    mask = torch.arange(10).expand(3, 10) < torch.tensor([[10], [7], [4]])
    labels = ids.masked_fill(~mask, -100)
    labels[:, :2] = -100
    return ids * mask, mask, labels


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A tiny random Llama with a tokenizer of bytes."""
    from model_folder import write_model_folder

    return write_model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def smollm2():
    """The folder of SmolLM2-135M-Instruct; without it the test is skipped."""
    if not (SMOLLM2 / "model.safetensors").is_file():
        pytest.skip(
            f"SmolLM2-135M-Instruct is not in {SMOLLM2}: put it there, or name its folder in ADAPTIVE_BENCH_SMOLLM2"
        )
    return SMOLLM2


@pytest.fixture
def lines():
    """A reporter that remembers what was said and which tasks were begun."""
    from adaptive_bench.progress import Line, SilentReporter, TaskStarted

    class Lines(SilentReporter):
        def __init__(self):
            self.lines: list[str] = []
            self.tasks: list[str] = []

        def emit(self, event):
            if isinstance(event, Line):
                self.lines.append(event.text)
            if isinstance(event, TaskStarted):
                self.tasks.append(event.label)

    return Lines()
