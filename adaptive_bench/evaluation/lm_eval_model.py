"""lm-eval's interface to an adaptive model: scores continuations and generates text.

Every request is encoded before the model runs, so that a prompt that does not fit is reported before any time is spent.
Requests are sorted by length, longest first, so that memory runs out early or not at all.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import has_bos_prefix
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from adaptive_bench import processes
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.finite import Watched, check_scores
from adaptive_bench.evaluation.generation_settings import GenerationSettings, cut_at, stop_after
from adaptive_bench.evaluation.scoring import Room, Scored, Scorer, fixed_batches
from adaptive_bench.hardware import OutOfMemory, ran_out_of_memory
from adaptive_bench.method import document_key
from adaptive_bench.model.generation import Choose, generate_queue, likeliest, sampler
from adaptive_bench.model.tokenization import conversation, end_tokens, logits_processors, without_appended_end
from adaptive_bench.progress import Reporter, RunningTask, SilentReporter

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel

Request = tuple[tuple[str, str] | None, list[int], list[int]]
T = TypeVar("T")


class _Prompt(NamedTuple):
    """A prompt to continue, its place among the requests, and the key of its document."""

    place: int
    token_ids: list[int]
    document: int


class AdaptiveLM(TemplateLM):
    """An adaptive model for lm-eval, evaluated at its current dial.

    In log-likelihood passes and in generation, tokens after the prompt are marked for the model (`continuation_mask`),
    so that both kinds of task use the same thresholds for the same kind of token.

    Args:
        tokenizer: A start token is added exactly when it adds one itself, as in training.
        batch_size: Sequences in one forward pass.
        seed: Seed for tasks that sample.
        enable_thinking: Passed to the chat template if it is not `None`.
        label: Name of the work in the progress display.
        reporter: Receives progress, and a note about prompts that had to be cut.

    Attributes:
        time_s: Seconds inside model calls so far.
        prompt_tokens, generated_tokens: Tokens fed so far, without padding, and generated.
    """

    def __init__(
        self,
        model: AdaptiveModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int,
        seed: int = 0,
        enable_thinking: bool | None = None,
        label: str = "evaluate",
        reporter: Reporter | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.seed = seed
        self.enable_thinking = enable_thinking
        self.label = label
        self.reporter = reporter or SilentReporter()
        self.context_length = model.backbone.context_length
        self._device = next(model.parameters()).device
        self._processes = processes.current_group()
        self._documents: list[int] | None = None  # document keys of the requests in `loglikelihood`
        self.time_s = 0.0
        self.prompt_tokens = 0
        self.generated_tokens = 0

    @property
    def eot_token_id(self) -> int:
        """The end-of-sequence token."""
        if self.tokenizer.eos_token_id is None:
            raise UsageError(
                "Evaluation needs an end-of-sequence token, but the tokenizer has none. "
                "Set eos_token in the model's tokenizer_config.json or choose another --model."
            )
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        """The token that replaces an empty prompt: the start token, or else the end-of-sequence token."""
        start = self.tokenizer.bos_token_id
        return self.eot_token_id if start is None else int(start)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """Token ids as in training: with the tokenizer's own start token, without an end token that it appends."""
        if add_special_tokens is None:
            # A chat template writes the start token itself; a second one would not be as in training.
            add_special_tokens = not has_bos_prefix(string, self.tokenizer.bos_token)
        token_ids: list[int] = self.tokenizer(string, add_special_tokens=add_special_tokens).input_ids
        return without_appended_end(self.tokenizer, token_ids) if add_special_tokens else token_ids

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Messages in the tokenizer's chat template; called by lm-eval if prompts use a chat template."""
        return conversation(self.tokenizer, chat_history, add_generation_prompt, enable_thinking=self.enable_thinking)

    def fits(self, request: Instance) -> bool:
        """Whether a request fits into the context, with room for one token if text is generated."""
        if request.request_type == "generate_until":
            return len(self.tok_encode(request.args[0])) < self.context_length
        # One more than the context: the last token of a continuation is predicted and never read. Rolling texts are cut
        # into windows, so they always fit.
        return request.request_type != "loglikelihood" or (
            sum(map(len, self._encode_pair(*request.args))) <= self.context_length + 1
        )

    @property
    def tokenizer_name(self) -> str:
        """Name of the tokenizer, by which lm-eval distinguishes cached prompts."""
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """See `TemplateLM.loglikelihood`; the reporter shows the progress."""
        for request in requests:
            if not request.args[0] and not self.tok_encode(request.args[1], add_special_tokens=False):
                raise UsageError(
                    f"A document has a prompt or a continuation with tokens, got neither in document {request.doc_id} "
                    f"of {request.task_name}. Leave it out with --limit, or choose another model or task."
                )
        # lm-eval passes only encoded requests on, to `_loglikelihood_tokens`, so the keys wait here.
        self._documents = [self._document(request) for request in requests]
        try:
            return super().loglikelihood(requests, disable_tqdm=True)
        finally:
            self._documents = None

    def _loglikelihood_tokens(self, requests: Sequence[Request], **kwargs: Any) -> list[tuple[float, bool]]:
        """See `_scores`; called by lm-eval with the encoded requests only."""
        return self._scores(requests, self._documents or [0] * len(requests))

    def _document(self, request: Instance) -> int:
        """Key of the document of a request; 0 if the model draws nothing at random, so that documents share work."""
        if not self.model.draws or request.doc_id is None:
            return 0
        return document_key(str(request.task_name), request.doc_id)

    def _scores(self, requests: Sequence[Request], documents: Sequence[int]) -> list[tuple[float, bool]]:
        """Log-likelihood of each continuation, and whether greedy decoding would generate it.

        A prompt that does not fit loses its beginning, as in lm-eval; one line reports the number of such prompts. A
        continuation that alone is longer than the context, or has no tokens, is a `UsageError`.
        """
        scored: list[Scored] = []
        too_long = 0
        for index, ((texts, prompt, continuation), document) in enumerate(zip(requests, documents, strict=True)):
            if not 1 <= len(continuation) <= self.context_length:
                raise UsageError(
                    f"A continuation must have between 1 and {self.context_length} tokens (the context), got "
                    f"{len(continuation)} after the prompt {'' if texts is None else texts[0][-60:]!r} ({self.label}). "
                    f"Choose another model or task, or leave such documents out with --limit or --skip-overlong."
                )
            # The last token is never read, hence one more than the context (see `scoring`).
            too_long += len(prompt) + len(continuation) > self.context_length + 1
            scored.append(Scored(index, tuple(prompt), tuple(continuation), document))
        if too_long:
            self.reporter.line(
                f"{self.label}: {too_long} of {len(requests)} prompts are longer than the context of "
                f"{self.context_length} tokens; their beginning is cut."
            )
        answers: list[tuple[float, bool]] = [(0.0, False)] * len(requests)
        group = self._processes
        scorer = Scorer(self.model, self.batch_size, self._timed, group.rank, group.count)
        with torch.inference_mode(), self.reporter.task(self.label, total=len(requests)) as task:

            def score_part() -> list[tuple[int, float, bool]]:
                found = []
                for batch in scorer.score(scored):
                    check_scores((score for _, score, _ in batch), self.label, self.model)
                    found += batch
                    # Counts for the other processes too, which are about as far.
                    task.advance(len(batch) * group.count)
                return found

            for index, score, greedy in group.pool(score_part):
                answers[index] = score, greedy
        self.prompt_tokens += scorer.tokens
        return answers

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = True) -> list[float]:
        """Log-likelihood of whole texts, in windows of the context length.

        Each text follows one start token, which is never scored. lm-eval adds it, so the tokenizer must not.
        """
        windows: list[Request] = []
        owners: list[int] = []
        for owner, request in enumerate(requests):
            pieces = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0], add_special_tokens=False),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.context_length,
                context_len=1,
            )
            for prompt, continuation in map(make_disjoint_window, pieces):
                windows.append((None, prompt, continuation))
                owners.append(owner)
        totals = [0.0] * len(requests)
        documents = [self._document(requests[owner]) for owner in owners]
        for owner, (score, _) in zip(owners, self._scores(windows, documents), strict=True):
            totals[owner] += score
        return totals

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        """Text after each prompt, up to a stop string, the end-of-sequence token, or the end of the context. A prompt
        that leaves no room is a `UsageError`: it is never cut, since an answer to half a question means nothing.
        """
        # Whether a text stays the same whoever joins or leaves its batch; see `generate_queue`.
        refills = self.model.is_causal and self.model.method.kv_policy != "defer"
        end = str(self.tokenizer.decode([self.eot_token_id], skip_special_tokens=False))
        groups: dict[GenerationSettings, list[_Prompt]] = defaultdict(list)
        for index, request in enumerate(requests):
            settings = GenerationSettings.read(request.args[1], end)
            prompt = self.tok_encode(request.args[0]) or [self.prefix_token_id]
            room = self.context_length - len(prompt)
            if room < 1:
                raise UsageError(
                    f"A prompt must leave room for an answer in the context of {self.context_length} tokens, but "
                    f"document {request.doc_id} of {request.task_name} has {len(prompt)}. Lower --num-fewshot, "
                    f"choose a model with a longer context, or leave such documents out with --skip-overlong."
                )
            if settings.do_sample or not refills:
                # A fixed batch is of texts with one limit; in the queue each text ends at its own room anyway.
                settings = replace(settings, max_new_tokens=min(settings.max_new_tokens, room))
            groups[settings].append(_Prompt(index, prompt, self._document(request)))
        texts = [""] * len(requests)
        with torch.inference_mode(), self.reporter.task(self.label, total=len(requests)) as task:
            for settings, members in groups.items():
                members.sort(key=lambda member: -len(member.token_ids))
                fixed = settings.do_sample or not refills
                for member, tokens in zip(members, self._write(settings, members, task, fixed), strict=True):
                    texts[member.place] = cut_at(settings.until, self.text_of(tokens))
        return texts

    def _write(
        self, settings: GenerationSettings, members: Sequence[_Prompt], task: RunningTask, fixed: bool
    ) -> list[list[int]]:
        """New tokens of each prompt: in one batch that new prompts join as texts end, or, for sampling and for methods
        whose decisions depend on the batch, in `fixed` batches that depend only on the prompts.
        """
        group, room = self._processes, Room(self.model)
        # Every `count`-th: prompts are sorted by length, so that each process gets long and short ones.
        mine = members if fixed else members[group.rank :: group.count]
        longest = max((len(one.token_ids) for one in mine), default=0) + settings.max_new_tokens
        longest = min(longest, self.context_length)
        # Results depend on the batch, so all documents need one size: `evaluate` halves it and starts again.
        if fixed and not room.fits(self.batch_size, longest):
            raise OutOfMemory(f"{self.batch_size} texts of {longest} tokens at a time do not fit into memory.")

        def write_part() -> list[tuple[int, list[int]]]:
            if not fixed:
                return self._written(settings, mine, room.rows(self.batch_size, longest), task)
            found = []
            numbered = enumerate(fixed_batches(members, self.batch_size))
            for number, batch in islice(numbered, group.rank, None, group.count):
                # Seeded by the number of the batch, so that draws do not depend on which process writes it.
                draw = sampler(settings.temperature, settings.top_p, self.seed + number, self._device)
                found += self._written(settings, batch, len(batch), task, draw if settings.do_sample else likeliest)
            return found

        # Every process gets all texts, since lm-eval scores on each of them.
        by_place = dict(group.pool(write_part))
        return [by_place[member.place] for member in members]

    def _written(
        self,
        settings: GenerationSettings,
        members: Sequence[_Prompt],
        rows: int,
        task: RunningTask,
        draw: Choose = likeliest,
    ) -> list[tuple[int, list[int]]]:
        """Place and new tokens of each prompt, generated with at most `rows` texts at a time."""
        choose = Watched(draw)
        write = partial(
            generate_queue,
            self.model,
            [member.token_ids for member in members],
            rows=rows,
            max_new_tokens=settings.max_new_tokens,
            eos_token_ids=self.end_tokens,
            stop=stop_after(settings.until, self.tokenizer),
            processors=logits_processors(self.model),
            choose=choose,
            ended=lambda texts: task.advance(texts * self._processes.count),
            documents=[member.document for member in members],
        )
        written: list[list[int]] = self._timed(write) if members else []
        choose.check(self.label, self.model)
        self.prompt_tokens += sum(len(member.token_ids) for member in members)
        self.generated_tokens += sum(map(len, written))
        return [(member.place, tokens) for member, tokens in zip(members, written, strict=True)]

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text of new tokens up to and including the first end token; a special end token adds no text."""
        ends = self.end_tokens
        kept = list(tokens)[: next((place for place, token in enumerate(tokens, 1) if token in ends), len(tokens))]
        return str(self.tokenizer.decode(kept, skip_special_tokens=True))

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokenizer's end token and those of the model's generation config."""
        return end_tokens(self.model, self.tokenizer)

    def _timed(self, call: Callable[[], T]) -> T:
        """Run a model call and add its time; `OutOfMemory` if it did not fit into memory."""
        start_s = self._clock_s()
        try:
            result = call()
        except (RuntimeError, MemoryError) as error:
            if not ran_out_of_memory(error):
                raise
            raise OutOfMemory(
                f"Memory ran out in {self.label} with {self.batch_size} sequence(s) at a time on {self._device}. "
                f"Choose a smaller model, fewer --num-fewshot examples or a device with more memory."
            ) from error
        self.time_s += self._clock_s() - start_s
        return result

    def _clock_s(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # calls return before the GPU has done its work
        return time.perf_counter()
