"""At saving 0 other people's code gets the dense model's numbers from an adaptive model."""

import os
from copy import deepcopy
from pathlib import Path

import lm_eval
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import CachingLM
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, pipeline

from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation import lm_eval_registration
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.model import AdaptiveModel

MODELS = Path(os.environ["ADAPTIVE_BENCH_SHARED"]) / "models"
TASKS = {"nano_math": 4, "nano_qa_ll": 6}  # documents


@pytest.fixture(
    scope="module",
    params=["tiny", pytest.param("tinystories-llama-3M", marks=pytest.mark.slow), "tinyllamas-stories260K"],
)
def pair(request):
    """A dense model, the same one as an adaptive model, and the tokenizer."""
    if request.param == "tiny":
        names = ("backbone", "tokenizer")
        plain, tokenizer = (deepcopy(request.getfixturevalue(name)) for name in names)
        plain.config.max_position_embeddings = 512
    elif not (MODELS / request.param).is_dir():
        pytest.skip(f"needs {MODELS / request.param}")
    else:
        plain = AutoModelForCausalLM.from_pretrained(MODELS / request.param).eval()
        tokenizer = AutoTokenizer.from_pretrained(MODELS / request.param)
    return plain, AdaptiveModel.build(plain, "random_skip").eval(), tokenizer


def answers(lm, **settings):
    """What lm-eval logs of the nano tasks: metrics and responses, document by document."""
    folders = [str(find_task(name).folder) for name in TASKS]
    manager = TaskManager(include_path=folders, include_defaults=False)
    found = {}
    for name, documents in TASKS.items():
        results = lm_eval.simple_evaluate(
            lm, tasks=[name], limit=documents, task_manager=manager, bootstrap_iters=0, **settings
        )
        found[name] = [
            (sample["doc_id"], sample["filter"], sample["resps"], {key: sample[key] for key in sample["metrics"]})
            for sample in results["samples"][name]
        ]
    return found


def assert_alike(ours, theirs):
    for name in TASKS:
        for mine, other in zip(ours[name], theirs[name], strict=True):
            assert (mine[0], mine[1], mine[3]) == (other[0], other[1], other[3])
            for one, two in zip(mine[2], other[2], strict=True):
                if isinstance(one[0], str):
                    assert one == two
                else:
                    assert one[0][0] == pytest.approx(two[0][0], abs=1e-3) and one[0][1] == two[0][1]


@pytest.fixture(scope="module")
def theirs(pair):
    """What lm-eval's own class answers with the dense model."""
    plain, _, tokenizer = pair
    return answers(HFLM(pretrained=plain, tokenizer=deepcopy(tokenizer), batch_size=3))


def test_lm_evals_own_class_gives_the_dense_models_numbers(pair, theirs):
    """`HFLM(pretrained=model)`, texts and scores document by document."""
    _, model, tokenizer = pair
    assert_alike(answers(HFLM(pretrained=model, tokenizer=deepcopy(tokenizer), batch_size=3)), theirs)


def test_a_pipeline_writes_what_the_dense_model_writes(pair):
    """Greedy and sampled, several prompts at once."""
    plain, model, tokenizer = pair
    tokenizer = deepcopy(tokenizer)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    prompts, found = ["Once upon a time", "Tom has 3 apples and"], []
    for each in (plain, model):
        write = pipeline("text-generation", model=each, tokenizer=tokenizer, device="cpu")
        found.append(write(prompts, max_new_tokens=12, do_sample=False, batch_size=2))
    assert found[0] == found[1]


def _late_letter(text):
    """A character that does not come before the middle; bytes that are no whole character cannot be looked for."""
    return next(letter for letter in text[len(text) // 2 :] + text if letter.isascii() and letter.isprintable())


def test_stop_strings_end_where_hugging_face_ends_them(pair):
    """In arguments and in a config object; without the tokenizer they are refused."""
    plain, model, tokenizer = pair
    prompt = tokenizer("Once upon a time", return_tensors="pt").input_ids
    free = tokenizer.decode(plain.generate(prompt, max_new_tokens=12, do_sample=False)[0, prompt.shape[1] :])
    settings = {"max_new_tokens": 12, "do_sample": False, "stop_strings": [_late_letter(free)]}
    wanted = plain.generate(prompt, tokenizer=tokenizer, **settings)
    assert wanted.shape[1] < prompt.shape[1] + 12
    assert torch.equal(model.generate(prompt, tokenizer=tokenizer, **settings), wanted)
    assert torch.equal(model.generate(prompt, GenerationConfig(**settings), tokenizer=tokenizer), wanted)
    with pytest.raises(UsageError, match="tokenizer"):
        model.generate(prompt, **settings)


def test_a_loaded_model_knows_where_its_tokenizer_is(folder, pair):
    """`HFLM(pretrained=model)` and nothing else."""
    found = HFLM(pretrained=AdaptiveModel.from_pretrained(folder)).tokenizer
    assert found("Tom has 3").input_ids == pair[2]("Tom has 3").input_ids


@pytest.fixture
def folder(pair, tmp_path):
    _, model, tokenizer = pair
    model.save_pretrained(tmp_path / "saved", tokenizer)
    return tmp_path / "saved"


def test_the_model_of_a_folder(folder, pair, theirs):
    """`adaptive` in lm-eval's registry: the dense numbers at saving 0, the suite's own at another."""
    _, model, tokenizer = pair
    settings = {"model_args": f"pretrained={folder}", "device": "cpu", "batch_size": 3}
    assert_alike(answers(lm_eval_registration.NAME, **settings), theirs)
    settings["model_args"] += ",saving=0.3"
    found = answers(lm_eval_registration.NAME, **settings)
    for name, documents in TASKS.items():
        model.saving = 0.3
        samples = evaluate(model, tokenizer, name, limit=documents)[1]
        model.saving = 0.0
        first = {doc: metrics for doc, *_, metrics in reversed(found[name])}
        for sample in samples:
            assert set(first[sample.doc].values()) <= set(sample.scores.values())


def test_a_cache_gives_each_method_dial_and_checkpoint_its_own_answers(model_folder, tmp_path, monkeypatch):
    """lm-eval's file of `--use_cache` knows answers by their prompts alone."""
    plain, tokenizer = AutoModelForCausalLM.from_pretrained(model_folder), AutoTokenizer.from_pretrained(model_folder)

    def save(spec, scale):
        with torch.no_grad():
            plain.model.layers[1].mlp.down_proj.weight.mul_(scale)
        AdaptiveModel.build(plain, spec).save_pretrained(tmp_path / spec, tokenizer)

    def asked(spec, cache, **dial):
        lm = lm_eval_registration.AdaptiveCheckpoint(str(tmp_path / spec), device="cpu", **dial)
        return ask(lm if cache is None else CachingLM(lm, str(cache)), "loglikelihood", "Tom has", " 3 apples")[0]

    save("random_skip", 1)
    save("static_depth", 1)
    kinds = [("random_skip", {}), ("random_skip", {"saving": 0.4}), ("static_depth", {"saving": 0.5})]
    alone = [asked(spec, None, **dial) for spec, dial in kinds]
    assert len(set(alone)) == 3
    cache = tmp_path / "c_rank0.db"
    assert [asked(spec, cache, **dial) for spec, dial in kinds] == alone
    with monkeypatch.context() as patch:
        patch.setattr(lm_eval_registration.AdaptiveCheckpoint, "loglikelihood", lambda *_: pytest.fail("asked again"))
        assert [asked(spec, cache, **dial) for spec, dial in kinds] == alone
    save("random_skip", 3)
    assert asked("random_skip", cache, saving=0.4) == asked("random_skip", None, saving=0.4) != alone[1]


def test_mistakes_in_the_arguments(folder, tmp_path):
    """Two dials, no number, no folder."""
    for wrong, said in [
        ({"saving": 0.1, "dial": 0.1}, "one dial"),
        ({"saving": "abc"}, "'abc'"),
        ({"dial": "abc"}, "'abc'"),
        ({"batch_size": "many"}, "batch_size"),
        ({"dtype": "nn"}, "dtype"),
        ({"device": "cuda:99"}, "cuda:99"),
        ({"pretrained": None}, "folder"),
        ({"pretrained": str(tmp_path / "nowhere")}, "adaptive"),
    ]:
        with pytest.raises(UsageError, match=said):
            lm_eval_registration.AdaptiveCheckpoint(**{"pretrained": str(folder), "device": "cpu"} | wrong)


def ask(lm, kind, *arguments):
    """What a model for lm-eval answers to one request."""
    (answer,) = getattr(lm, kind)([Instance(kind, {}, arguments, 0, metadata=("mine", 0, 1))])
    return answer


def test_an_end_token_that_is_spelled_out_ends_the_text(pair):
    """A model may write its end token's name with other tokens: stock lm-eval cuts there, so do we."""
    plain, model, tokenizer = pair
    prompt = "Once upon a time"
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    free = tokenizer.decode(plain.generate(ids, max_new_tokens=16, do_sample=False)[0, ids.shape[1] :])
    spelled = next(letter for letter in free[len(free) // 3 :] if letter.isascii() and letter.isalpha())
    tokenizer = deepcopy(tokenizer)
    tokenizer.add_special_tokens({"eos_token": spelled})
    assert tokenizer.eos_token_id not in ids[0]
    settings = {"until": ["\n\n\n"], "max_gen_toks": 16, "do_sample": False}
    theirs = ask(
        HFLM(pretrained=plain, tokenizer=deepcopy(tokenizer), batch_size=1), "generate_until", prompt, settings
    )
    ours = ask(AdaptiveLM(model, tokenizer, batch_size=1), "generate_until", prompt, settings)
    assert ours == theirs
    assert spelled not in ours and len(ours) < len(free)
