"""The model a study is about, by the ways users name one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adaptive_bench import registry
from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.device import find_device
from adaptive_bench.model.saving import load_tokenizer
from adaptive_bench.model.saving import read as read_saved
from adaptive_bench.runs.outcome.trained import find_checkpoint
from adaptive_bench.runs.planning.backbones import find_backbone
from adaptive_bench.store.digest import folder_digest
from adaptive_bench.store.runs import LAST, find_run, run_folders
from adaptive_bench.store.shelves import DEFAULT_OUT

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Files of a run, of a checkpoint, and of the record around one.
_OF_A_RUN = ("config.yaml", "adaptive.json", "checkpoint/adaptive.json")
# Trained as a plain model, so that its layers are those of one.
_PLAIN = ("dense", "base")


@dataclass(frozen=True)
class Subject:
    """The model that is studied.

    Attributes:
        name: As the user wrote it; of a folder the last part, since records are read on other machines.
        fingerprint: Of its files.
        model: In `eval()` mode, in fp32.
    """

    name: str
    fingerprint: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def find_subject(name: str, device: str = "auto", out: Path = DEFAULT_OUT) -> Subject:
    """A registered model, a folder in Hugging Face layout, a hub id; a run (its dense model), or a checkpoint.

    Args:
        out: Where runs are looked for by name.

    Raises:
        UsageError: The checkpoint is not of a dense model.
        EnvironmentProblem: There is no such model, or it cannot be read.
    """
    place, saved_in = find_device(device), saved_folder(name, out)
    if saved_in is not None:
        folder = find_checkpoint(saved_in, "dense", "the model that headroom is measured on,")
        saved = read_saved(folder)
        if saved.spec.name not in _PLAIN:
            raise UsageError(
                f"Headroom is measured on a model that runs all of its layers, but the one in {str(folder)!r} was "
                f"trained as {saved.spec}. Name a run with the method dense, or another model."
            )
        model = AdaptiveModel.from_pretrained(folder).backbone_model
        called = saved_in.resolve().name
        return Subject(called, folder_digest(folder), model.eval().to(place), load_tokenizer(folder))
    source = find_backbone(name)
    return Subject(model_name(name), source.fingerprint, source.load_model().eval().to(place), source.load_tokenizer())


def saved_folder(name: str, out: Path = DEFAULT_OUT) -> Path | None:
    """The folder of a run or of a saved model that a name stands for; `None` where it stands for a plain model.

    Args:
        out: Where runs are looked for by name.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir() and name not in registry.names("models") and _begins_a_run(name, out):
        folder = find_run(name, out)
    return folder if any((folder / mark).is_file() for mark in _OF_A_RUN) else None


def model_name(name: str) -> str:
    """What a plain model is called in records: of a folder the last part."""
    folder = Path(name).expanduser()
    return folder.resolve().name if folder.is_dir() else name


def _begins_a_run(name: str, out: Path) -> bool:
    path = Path(name)
    if path.name != name:  # `<out>/<name>`, unless it is a hub id
        out, name = path.parent, path.name
        if not out.is_dir():
            return False
    return name == LAST or any(folder.name.startswith(name) for folder in run_folders(out))
