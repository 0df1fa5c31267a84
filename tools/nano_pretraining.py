"""Pretrains the nano weights by a seeded recipe: `python tools/nano_pretraining.py --out FOLDER`.

The text is endless and in a seeded order: the world's stories, its facts, sums, and summaries of tales. From it the
backbone learns the world, arithmetic, and how stories are told. It never sees a question, an answer or a chain of
computations: following several facts in a row, and computing from event to event, are left to fine-tuning.

The tokenizer is a byte-level BPE, so any text is encoded and decoded without change. A number below 100 is one token
(with or without the space before it), and every whitespace character except one leading space is a separate token, so
no token spans a line break or three digits.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path

import torch
import transformers
from nano_sensitivity import add_branch_dropout, score, sensitivities
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from adaptive_bench.tasks.nano.items import Split, stream
from adaptive_bench.tasks.nano.questions import make_math_problem, make_question
from adaptive_bench.tasks.nano.stories import Story, make_statements, make_story, make_summary, make_sums
from adaptive_bench.tasks.nano.task import TEST_DOCS

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Muon in fp32 for weight matrices [N, M]: its updates are nearly orthogonalised momentum.

    It learns facts in far fewer tokens than AdamW. Matrices of one shape are updated together.

    Idea: Keller Jordan's Muon (https://kellerjordan.github.io/posts/muon/), with the step size of Moonlight
    (https://arxiv.org/abs/2502.16982), which fits AdamW's learning rates. torch has a Muon too, but it computes in
    bf16, which a CPU emulates slowly, and one matrix at a time.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float, weight_decay: float, momentum: float = 0.95) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # torch also allows a closure
        """One step with Nesterov momentum and decoupled weight decay."""
        for group in self.param_groups:
            by_shape: defaultdict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
            for matrix in group["params"]:
                by_shape[matrix.shape].append((matrix, matrix.grad))
            for shape, pairs in by_shape.items():
                gradients = torch.stack([gradient for _, gradient in pairs])
                state = self.state[pairs[0][0]]
                average = state.setdefault("average", torch.zeros_like(gradients))
                average.lerp_(gradients, 1 - group["momentum"])
                update = _orthogonal(gradients.lerp(average, group["momentum"]))
                scale = 0.2 * max(shape) ** 0.5
                for (matrix, _), change in zip(pairs, update, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"]).sub_(change, alpha=group["lr"] * scale)


def _orthogonal(matrices: Tensor) -> Tensor:
    """Approximately the nearest (semi-)orthogonal matrices, by Newton-Schulz iterations: [B, N, M] -> [B, N, M]."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


# An upper limit: BPE training ends earlier once every word of the world is one token.
VOCABULARY_SIZE = 3072
CONTEXT = 512
BOS, EOS, PAD = "<|bos|>", "<|eos|>", "<|pad|>"
_PIECES = r" ?\d{1,2}| ?\p{L}+| ?[^\s\p{L}\d]+|\s"


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer trained on `texts` that puts BOS before each sequence, as Llama's does."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    bos = (BOS, tokenizer.token_to_id(BOS))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[bos])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=CONTEXT,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


# Share of sequences per source.
_SHARES = {"story": 0.2, "statements": 0.22, "sums": 0.28, "summary": 0.3}


def pretraining_texts(seed: int) -> Iterator[Story]:
    """Texts without BOS and EOS, only from the train split, so that no held-out story appears."""
    source = random.Random(f"corpus/{seed}")
    streams: dict[str, Iterator[Story]] = {
        "story": stream(make_story, "train", seed),
        "statements": stream(make_statements, "train", seed),
        "sums": stream(make_sums, "train", seed),
        "summary": stream(make_summary, "train", seed),
    }
    while True:
        (chosen,) = source.choices(tuple(_SHARES), tuple(_SHARES.values()))
        yield next(streams[chosen])


def tokenizer_texts(seed: int, count: int) -> Iterator[str]:
    """Texts on which the tokenizer is trained: stories and training questions, so that every word is one token."""
    for make in (make_math_problem, make_question):
        for item in islice(stream(make, "train", seed), count):
            yield f"{item.prompt} {item.target}"
    yield from (story.text for story in islice(pretraining_texts(seed), 2 * count))


_TOKENIZER_TEXTS = 8_000
_HEADS = 4
_SEQUENCES_PER_STEP = 16
_STEPS_PER_CHUNK = 16
_PEAK_LEARNING_RATE = 5e-3
_WARM_UP_STEPS = 50
_FALLING_SHARE, _FINAL_SHARE = 0.3, 0.02
_WEIGHT_DECAY = 0.01
_MAX_GRADIENT_NORM = 1.0
# Weight in the loss of tokens that a story draws at random: they cannot be learned and would drown out those that can.
_DRAWN_WEIGHT = 0.1
_LOG_EVERY = 50
_SAVE_EVERY = 100


@dataclass(frozen=True)
class Recipe:
    """The choices of the recipe, which `recipe.json` records.

    Attributes:
        family: `model_type` of the backbone in transformers; its layers must be Llama's except for details.
        steps: Optimizer steps; the learning rate reaches its final value at the last one.
        seed: Seed of the initial weights, of the text and of the dropped branches.
        layers: Number of layers. They are so few and so narrow that the tasks need each of them.
        width: Size of the hidden states; four heads share it, and the MLPs are 8/3 as wide.
        tied_embeddings: Whether the head shares the embedding's weights. Small tied embeddings make the first layer
            build the residual stream: nearly all function then sits in this layer, and it decides what a method does.
        embedding_std: Standard deviation of the initial embedding. At 1 a token enters the first layer at the size that
            the layer's norm gives.
        branch_dropout: Share of tokens that bypass each branch in training, drawn independently for every token and
            branch. Without it, the model comes to rely on the first layer again.
    """

    family: str = "llama"
    steps: int = 2200
    seed: int = 1
    layers: int = 6
    width: int = 48
    tied_embeddings: bool = False
    embedding_std: float = 1.0
    branch_dropout: float = 0.05


def _batches(tokenizer: PreTrainedTokenizerBase, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Right-padded token ids [B, S] and their loss weights [B, S], 0 on padding.

    Sequences of similar length share a batch; the batches of a chunk come in random order.
    """
    stories = pretraining_texts(seed)
    source = random.Random(f"batches/{seed}")
    while True:
        drawn = islice(stories, _SEQUENCES_PER_STEP * _STEPS_PER_CHUNK)
        chunk = sorted((_weighted(story, tokenizer) for story in drawn), key=lambda sequence: len(sequence[0]))
        batches = [chunk[start : start + _SEQUENCES_PER_STEP] for start in range(0, len(chunk), _SEQUENCES_PER_STEP)]
        source.shuffle(batches)
        for batch in batches:
            ids = [torch.tensor(ids) for ids, _ in batch]
            weights = [torch.tensor(weights) for _, weights in batch]
            yield (
                pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id),
                pad_sequence(weights, batch_first=True),
            )


def _weighted(story: Story, tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[float]]:
    """Token ids of a story from BOS to EOS, and their weights in the loss."""
    ids, weights = [tokenizer.bos_token_id], [0.0]
    pieces = tokenizer([piece for piece, _ in story.pieces], add_special_tokens=False)["input_ids"]
    for piece, (_, follows) in zip(pieces, story.pieces, strict=True):
        ids += piece
        weights += [1.0 if follows else _DRAWN_WEIGHT] * len(piece)
    return [*ids, tokenizer.eos_token_id], [*weights, _DRAWN_WEIGHT]


def _weighted_loss(logits: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted mean next-token loss for logits [B, S, V], ids [B, S] and weights [B, S]."""
    losses = cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return (losses * weights[:, 1:].flatten()).sum() / weights[:, 1:].sum()


def _optimizers(model: torch.nn.Module) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for the matrices of the layers, because it learns facts in far fewer tokens; AdamW for everything else."""
    parameters = list(model.named_parameters())
    matrices = [value for name, value in parameters if value.ndim == 2 and ".layers." in name]
    rest = [value for name, value in parameters if value.ndim != 2 or ".layers." not in name]
    return (
        Muon(matrices, lr=_PEAK_LEARNING_RATE, weight_decay=_WEIGHT_DECAY),
        torch.optim.AdamW(rest, lr=_PEAK_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=_WEIGHT_DECAY, fused=True),
    )


def _learning_rate_share(step: int, steps: int) -> float:
    """Share of the peak learning rate: it rises linearly, stays constant, and falls linearly over the last part."""
    rising, falling = (step + 1) / _WARM_UP_STEPS, (steps - step) / (_FALLING_SHARE * steps)
    return min(rising, 1.0, max(falling, _FINAL_SHARE))


def build_backbone(tokenizer: PreTrainedTokenizerBase, recipe: Recipe) -> PreTrainedModel:
    """An untrained model with grouped-query attention; with the default recipe, a third of a million parameters."""
    torch.manual_seed(recipe.seed)
    config = AutoConfig.for_model(
        recipe.family,
        vocab_size=len(tokenizer),
        hidden_size=recipe.width,
        intermediate_size=recipe.width * 8 // 3,
        num_hidden_layers=recipe.layers,
        num_attention_heads=_HEADS,
        num_key_value_heads=_HEADS // 2,
        head_dim=recipe.width // _HEADS,  # Llama's rule; some families default to another width
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=recipe.tied_embeddings,
        initializer_range=0.05,  # with the usual 0.02 so narrow a model starts to attend much later
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    embedding = model.get_input_embeddings()
    assert isinstance(embedding, torch.nn.Embedding)
    torch.nn.init.normal_(embedding.weight, std=recipe.embedding_std)
    return model


def pretrain(folder: Path, recipe: Recipe, scored: Mapping[Split, int]) -> dict[str, object]:
    """Trains tokenizer and backbone from scratch, saves both with `recipe.json`, and returns that record.

    Args:
        folder: Folder for all files.
        recipe: What to train, and how.
        scored: For each split, how many of its items are scored at the end.
    """
    started_s = time.perf_counter()
    tokenizer = train_tokenizer(tokenizer_texts(recipe.seed, _TOKENIZER_TEXTS))
    tokenizer.save_pretrained(folder)
    model = build_backbone(tokenizer, recipe).train()
    add_branch_dropout(model, recipe.branch_dropout, recipe.seed)
    optimizers = _optimizers(model)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _learning_rate_share(step, recipe.steps))
        for optimizer in optimizers
    ]
    tokens, recent_loss = 0, 0.0
    for step, (ids, weights) in enumerate(islice(_batches(tokenizer, recipe.seed), recipe.steps), start=1):
        # No attention mask is needed: padding is on the right, where causal attention hides it from real tokens.
        loss = _weighted_loss(model(input_ids=ids).logits, ids, weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _MAX_GRADIENT_NORM)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        tokens += int((weights > 0).sum())
        recent_loss = loss.item() if step == 1 else 0.98 * recent_loss + 0.02 * loss.item()
        if step % _LOG_EVERY == 0:
            elapsed_s = time.perf_counter() - started_s
            print(f"step {step} loss {recent_loss:.4f} tokens {tokens} tokens/s {tokens / elapsed_s:.0f}", flush=True)
        if step % _SAVE_EVERY == 0:
            model.save_pretrained(folder)  # an interrupted run leaves its weights, but no recipe.json
    record: dict[str, object] = {
        **asdict(recipe),
        "sequences_per_step": _SEQUENCES_PER_STEP,
        "tokens": tokens,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "final_loss": round(recent_loss, 4),
        "training_time_s": round(time.perf_counter() - started_s),
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "sensitivities": sensitivities(model, tokenizer),
        "scores": {split: {"items": count, **score(model, tokenizer, split, count)} for split, count in scored.items()},
    }
    model.save_pretrained(folder)
    (folder / "recipe.json").write_text(json.dumps(record, indent=2) + "\n")
    return record


def main() -> None:
    """Command line of the recipe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for weights and tokenizer")
    default = Recipe()
    parser.add_argument("--family", default=default.family)
    parser.add_argument("--steps", type=int, default=default.steps)
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--layers", type=int, default=default.layers)
    parser.add_argument("--width", type=int, default=default.width)
    parser.add_argument("--tied-embeddings", action=argparse.BooleanOptionalAction, default=default.tied_embeddings)
    parser.add_argument("--embedding-std", type=float, default=default.embedding_std)
    parser.add_argument("--branch-dropout", type=float, default=default.branch_dropout)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--score-test", action="store_true", help="score the test split too: for final weights only")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    scored: dict[Split, int] = {"validation": 300}
    if chosen.score_test:
        scored["test"] = TEST_DOCS
    recipe = Recipe(**{field.name: getattr(chosen, field.name) for field in fields(Recipe)})
    print(json.dumps(pretrain(chosen.out, recipe, scored), indent=2))


if __name__ == "__main__":
    main()
