"""A tiny random model in a folder and a run that takes seconds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from adaptive_bench import registry
from adaptive_bench.config import EvalRecipe, RunConfig, TrainRecipe
from adaptive_bench.progress import SilentReporter


class Lines(SilentReporter):
    """Remembers what was said and which tasks were begun."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tasks: list[str] = []

    def task(self, name: str, total: int) -> Any:
        self.tasks.append(name)
        return super().task(name, total)

    def line(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    vocabulary = ["<pad>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    core = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(vocabulary)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>", pad_token="<pad>").save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=512, bos_token_id=None, eos_token_id=1, pad_token_id=0,
        tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def config_of(model_folder: Path, tmp_path: Path) -> Callable[..., RunConfig]:
    """`config_of(methods="dense", **changes)`: a run of seconds on the log-likelihood nano task."""

    def make(methods: str | tuple[str, ...] = "dense", **changes: Any) -> RunConfig:
        train = {"steps": 3, "batch_size": 2, "warmup_steps": 1, "max_length": 400, "checkpoint_every": 1}
        measuring = {"batch_size": 4, "limit": 3, "calibration_examples": 4, "grid": (0.0, 0.3)}
        values = {
            "tasks": ("nano_qa_ll",),
            "model": str(model_folder),
            "out": tmp_path / "out",
            "levels": (0.0, 0.1),
            "match_on": "tokens",
            "device": "cpu",
            "train": TrainRecipe(**train | changes.pop("train", {})),
            "evaluation": EvalRecipe(**measuring | changes.pop("evaluation", {})),
        }
        return RunConfig(methods=methods, **values | changes)

    return make


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], None]:
    """`registered(name, method)`: a method that exists for one test."""

    def put(name: str, method: Any) -> None:
        monkeypatch.setitem(registry._registered, ("methods", name), (method, "this test"))

    return put
