"""`transformers.Trainer` trains an adaptive model as it should be trained: schedules, losses, whole checkpoints."""

import re
from pathlib import Path

import pytest
import torch
from datasets import Dataset

from adaptive_bench import AdaptiveCallback
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.method.dial import annealed
from adaptive_bench.model import AdaptiveModel

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
STEPS = 6  # of `trainer_of`


@pytest.fixture
def built(make_backbone):
    def build(spec, **config):
        return AdaptiveModel.build(make_backbone("llama", **config), spec, seed=1)

    return build


SCHEDULED = ["gateskip", "mod", "skiplayer", "random_skip[trained=true]", "static_depth[trained=true]", "layerskip"]


LENGTHS = (14, 3, 9, 2)


def ragged(random_text, first):
    """Rows of several lengths, some labels of which count; `first`: those of first tokens do, one row has no others."""
    texts = [row[:length].tolist() for row, length in zip(random_text(4, 14), LENGTHS, strict=True)]
    labels = [list(text) for text in texts]
    labels[0][4:7] = [-100] * 3
    labels[2][1:] = [-100] * 8
    for row in labels:
        row[0] = row[0] if first else -100
    return [{"input_ids": text, "labels": row} for text, row in zip(texts, labels, strict=True)]


def padded_on(side):
    """A collator."""

    def collate(rows):
        longest = max(len(row["input_ids"]) for row in rows)
        batch = {}
        for name, fill in (("input_ids", 0), ("attention_mask", 0), ("labels", -100)):
            lists = [row.get(name) or [1] * len(row["input_ids"]) for row in rows]
            empty = [[fill] * (longest - len(one)) for one in lists]
            pairs = zip(empty, lists, strict=True) if side == "left" else zip(lists, empty, strict=True)
            batch[name] = torch.tensor([one + other for one, other in pairs])
        return batch

    return collate


def plain_loss(backbone, spec, batch):
    """Of one batch padded on the right, from Hugging Face's model alone: its own, or CALM's, sum_l l L_l / sum_l l."""
    if spec == "dense":
        return backbone(**batch).loss
    output = backbone(**batch, output_hidden_states=True)
    states = [*map(backbone.model.norm, output.hidden_states[1:-1]), output.hidden_states[-1]]
    size, last = backbone.config.vocab_size, len(states)
    losses = [backbone.loss_function(backbone.lm_head(each), batch["labels"], vocab_size=size) for each in states]
    return sum(loss * number for number, loss in enumerate(losses, 1)) * 2 / (last * (last + 1))


WHOLE_STEPS = [
    (spec, side, first, rows)
    for spec, side, first in [("dense", "right", 1), ("dense", "left", 0), ("dense", "left", 1), ("calm", "right", 1)]
    for rows in (4, 2, 1)
    if (side, first, rows) != ("left", 1, 2)  # Trainer counts labels behind padding: shares of micro-batches shift
]


@pytest.mark.parametrize(("spec", "side", "first", "rows"), WHOLE_STEPS)
def test_a_step_is_that_of_its_whole_batch(spec, side, first, rows, built, make_backbone, trainer_of, random_text):
    """However many micro-batches it has: the loss and the gradient of plain Hugging Face on all rows at once."""
    plain, model, text = make_backbone("llama").train(), built(spec), ragged(random_text, first)
    wanted = plain_loss(plain, spec, padded_on("right")(text))
    wanted.backward()
    before = {name: value.clone() for name, value in model.backbone_model.named_parameters()}
    steps = {"max_steps": 1, "per_device_train_batch_size": rows, "gradient_accumulation_steps": 4 // rows}
    rate = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
    trainer = trainer_of(
        model, [AdaptiveCallback()], **steps, **rate, logging_steps=1, train_sampling_strategy="sequential"
    )
    trainer.train_dataset, trainer.data_collator = Dataset.from_list(text), padded_on(side)
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(wanted.item(), rel=1e-4)
    for name, parameter in plain.named_parameters():
        step = before[name] - model.backbone_model.get_parameter(name)
        torch.testing.assert_close(step, parameter.grad, atol=1e-5, rtol=1e-3, msg=name)


def test_the_methods_own_losses_have_the_share_of_their_micro_batch(built, random_text):
    """A micro-batch of 3 of 12 labels enters with a quarter of its loss, penalties included; one without, with none."""
    model, ids = built("gateskip"), random_text(1, 4)
    model.begin_step(3, 4)
    whole = model.train()(ids, labels=ids).loss
    assert float(model(ids, labels=ids, num_items_in_batch=12).loss) == pytest.approx(float(whole) / 4)
    nothing = torch.full_like(ids, -100)
    model(ids, labels=nothing, num_items_in_batch=torch.tensor(12)).loss.backward()
    assert all(not value.grad.any() for value in model.parameters() if value.grad is not None)
    with pytest.raises(UsageError, match="none is left"):
        model(ids, labels=nothing)


@pytest.mark.parametrize("side", ["right", "left"])
def test_an_evaluation_of_padded_rows_is_that_of_hugging_face(side, built, make_backbone, trainer_of, random_text):
    """Its loss of rows padded on the right, where every token follows its text."""
    text = ragged(random_text, first=True)
    trainer = trainer_of(built("dense"), per_device_eval_batch_size=4)
    trainer.data_collator = padded_on(side)
    with torch.no_grad():
        wanted = float(make_backbone("llama").eval()(**padded_on("right")(text)).loss)
    assert trainer.evaluate(Dataset.from_list(text))["eval_loss"] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("spec", SCHEDULED)
def test_without_the_callback_a_schedule_refuses_to_train(spec, built, trainer_of):
    """Whatever the method's schedule is: it says what to do."""
    with pytest.raises(UsageError, match=r"callbacks=\[AdaptiveCallback\(\)\]"):
        trainer_of(built(spec)).train()


def test_the_schedule_advances_once_an_optimizer_step(built, trainer_of, monkeypatch):
    """Not once a micro-batch; at the end it is where it should be."""
    model, seen = built("gateskip"), []
    decide = model.method.decide

    def look(view):
        if view.site.number == 0:
            seen.append((model.method.step, model.method.total_steps, model.method.skip_share))
        return decide(view)

    monkeypatch.setattr(model.method, "decide", look)
    trainer_of(model, [AdaptiveCallback()]).train()
    end = 1.0 - model.method.dial_for(model.method.target)
    assert [step for step, *_ in seen] == [step for step in range(1, STEPS + 1) for _ in range(2)]
    assert {total for _, total, _ in seen} == {STEPS}
    wanted = [annealed(0.0, end, step, STEPS) for step, *_ in seen]
    assert [share for *_, share in seen] == pytest.approx(wanted) and seen[-1][2] == pytest.approx(end)
    assert len(model.loss_terms) > 1  # the method's own are in it
    with pytest.raises(UsageError, match="begin_step"):
        trainer_of(model).train()  # a second training has to say where it stands as well


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("spec", ["gateskip", "dense"])
def test_checkpoints_are_models_and_training_goes_on_from_them(spec, tied, built, trainer_of, random_text, tmp_path):
    """Tied embeddings as well: a resumed training ends where one without a break does."""
    model = built(spec, tie_word_embeddings=tied)
    trainer_of(model, [AdaptiveCallback()], save_strategy="steps", save_steps=3).train()
    loaded = AdaptiveModel.from_pretrained(tmp_path / "out" / f"checkpoint-{STEPS}")
    with torch.no_grad():
        assert torch.equal(loaded(random_text(2, 9)).logits, model.eval()(random_text(2, 9)).logits)
    assert len(list(loaded.parameters())) == len(list(model.parameters()))
    again = built(spec, tie_word_embeddings=tied)
    trainer = trainer_of(again, [AdaptiveCallback()], save_strategy="steps", save_steps=3)
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-3"))
    for (name, one), other in zip(model.named_parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(other, one, atol=1e-6, rtol=0, msg=name)


def test_weights_alone_are_no_model(built, trainer_of, tmp_path):
    """What the trainer writes by itself."""
    trainer = trainer_of(built("dense", tie_word_embeddings=True))
    trainer.save_model(str(tmp_path / "weights"))
    with pytest.raises(EnvironmentProblem, match=r"adaptive\.json.*callbacks=\[AdaptiveCallback\(\)\]"):
        AdaptiveModel.from_pretrained(tmp_path / "weights")


def test_a_state_has_tied_weights_once_and_is_read_with_either_name(built):
    model, other = (built("gateskip", tie_word_embeddings=True) for _ in range(2))
    state = model.state_dict()
    assert "backbone_model.lm_head.weight" not in state
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    state = model.state_dict()
    whole = state | {"backbone_model.lm_head.weight": state["backbone_model.model.embed_tokens.weight"]}
    head = {name: value for name, value in whole.items() if "embed_tokens" not in name}
    for given in (state, whole, head):
        other.load_state_dict(built("gateskip", tie_word_embeddings=True).state_dict())
        other.load_state_dict(given)
        assert all(torch.equal(value, other.state_dict()[name]) for name, value in state.items())


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [({"label_smoothing_factor": 0.1}, "label_smoothing_factor"), ({}, "compute_loss_func")],
    ids=["smoothing", "loss"],
)
def test_a_loss_that_is_not_the_models_own_is_refused(arguments, wanted, built, trainer_of):
    """The method's losses would be left out unsaid."""
    trainer = trainer_of(built("gateskip"), [AdaptiveCallback()], **arguments)
    if not arguments:
        trainer.compute_loss_func = lambda outputs, labels, **_: outputs.logits.float().square().mean()
    with pytest.raises(UsageError, match=wanted):
        trainer.train()


def test_other_models_are_refused(make_backbone, trainer_of):
    with pytest.raises(UsageError, match="LlamaForCausalLM"):
        trainer_of(make_backbone("llama"), [AdaptiveCallback()]).train()


def test_gradient_checkpointing_is_the_engines_own(built, trainer_of):
    """The same weights come of it; other kinds are refused."""
    plain, recomputed = built("gateskip"), built("gateskip")
    trainer_of(plain, [AdaptiveCallback()]).train()
    trainer_of(recomputed, [AdaptiveCallback()], gradient_checkpointing=True).train()
    assert recomputed.gradient_checkpointing
    for one, other in zip(plain.parameters(), recomputed.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
    with pytest.raises(UsageError, match="use_reentrant"):
        plain.gradient_checkpointing_enable({"use_reentrant": True})


def test_an_evaluation_between_steps_is_a_plain_one(built, trainer_of, random_text):
    """The loss that Trainer reports is the model's in `eval()` mode."""
    model = built("gateskip")
    trainer = trainer_of(model, [AdaptiveCallback()])
    trainer.train()
    found = trainer.evaluate(trainer.train_dataset)["eval_loss"]
    ids = random_text(24, 12)
    with torch.no_grad():
        assert found == pytest.approx(float(model.eval()(ids, labels=ids).loss), rel=1e-4)


BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_page_shows_what_works(block, tmp_path, monkeypatch):
    """Every block of the page on Python, by itself; what it saves can be loaded."""
    for package in ("peft", "trl"):
        if f"from {package} import" in block:
            pytest.importorskip(package, reason=f"needs the package {package} (the dev extra)")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(block, names)
    saved = re.findall(r'save_pretrained\("(\w+)"', block)
    assert all(AdaptiveModel.from_pretrained(folder).spec.name == "gateskip" for folder in saved)
    assert saved or "generate(" in block
