"""TRL's `SFTTrainer` with an adaptive model: the model's own loss, schedules and whole checkpoints."""

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer

from adaptive_bench import AdaptiveCallback
from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel

trl = pytest.importorskip("trl", reason="the extra `trl` is not installed")


class AdaptiveSFTTrainer(trl.SFTTrainer):
    compute_loss = Trainer.compute_loss


@pytest.fixture
def trainer_of(model_folder, tmp_path):
    def make(kind, changes=None, **given):
        model = AdaptiveModel.build(AutoModelForCausalLM.from_pretrained(model_folder), "gateskip", seed=1)
        tokenizer = AutoTokenizer.from_pretrained(model_folder)
        rows = [{"prompt": f"{number} + 1 = ", "completion": str(number + 1)} for number in range(12)]
        settings = {"max_steps": 3, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
        settings |= {"save_steps": 3, "report_to": [], "use_cpu": True, "bf16": False, "disable_tqdm": True}
        model = given.pop("model", model)
        return kind(
            model=model,
            args=trl.SFTConfig(str(tmp_path / "out"), logging_steps=1, **settings | (changes or {})),
            train_dataset=given.pop("train_dataset", Dataset.from_list(rows)),
            processing_class=tokenizer,
            callbacks=[AdaptiveCallback()] if isinstance(model, AdaptiveModel) else [],
            **given,
        ), model

    return make


def test_the_loss_is_the_models_own(trainer_of, tmp_path, random_text):
    trainer, model = trainer_of(AdaptiveSFTTrainer)
    before = {name: value.clone() for name, value in model.method.state_dict().items()}
    trainer.train()
    assert len(model.loss_terms) > 1  # the method's are in it
    assert any(not torch.equal(value, before[name]) for name, value in model.method.state_dict().items())
    loaded = AdaptiveModel.from_pretrained(tmp_path / "out" / "checkpoint-3")
    with torch.no_grad():
        ids = torch.arange(5, 14)[None]
        torch.testing.assert_close(loaded(ids).logits, model.eval()(ids).logits)


def test_accumulated_micro_batches_are_one_batch(trainer_of, model_folder, tmp_path):
    """Prompts and completions of several lengths, 4 x 1 and 1 x 4: the loss and the step of TRL with plain Hugging
    Face.
    """
    settings = {"max_steps": 1, "optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant"}
    settings |= {"max_grad_norm": 0.0, "train_sampling_strategy": "sequential", "save_strategy": "no"}
    words = ["a long answer that goes on", "no", "a shorter one", "y"]
    rows = Dataset.from_list([{"prompt": f"{word[0]}? ", "completion": word} for word in words])
    ends = []
    for kind, rows_at_once in ((trl.SFTTrainer, 4), (AdaptiveSFTTrainer, 4), (AdaptiveSFTTrainer, 1)):
        parts = {"per_device_train_batch_size": rows_at_once, "gradient_accumulation_steps": 4 // rows_at_once}
        model = AutoModelForCausalLM.from_pretrained(model_folder)
        trainer, _ = trainer_of(
            kind,
            settings | parts,
            model=AdaptiveModel.build(model, "dense") if kind is AdaptiveSFTTrainer else model,
            train_dataset=rows,
        )
        trainer.train()
        ends.append((trainer.state.log_history[0]["loss"], model.model.layers[0].mlp.down_proj.weight))
    for loss, weight in ends[1:]:
        assert loss == pytest.approx(ends[0][0], rel=1e-4)
        torch.testing.assert_close(weight, ends[0][1], atol=1e-5, rtol=1e-4)


def test_trls_own_loss_is_refused(trainer_of):
    """It would leave the method out."""
    trainer, _ = trainer_of(trl.SFTTrainer)
    with pytest.raises(UsageError, match=r"compute_loss = Trainer\.compute_loss"):
        trainer.train()


def test_adapters_by_trl(trainer_of, tmp_path):
    peft = pytest.importorskip("peft", reason="the extra `lora` is not installed")
    trainer, model = trainer_of(AdaptiveSFTTrainer, peft_config=peft.LoraConfig(task_type="CAUSAL_LM", r=2))
    model.method.requires_grad_(True)
    trainer.train()
    assert len(model.loss_terms) > 1
    assert AdaptiveModel.from_pretrained(tmp_path / "out" / "checkpoint-3").spec.name == "gateskip"


def test_packed_texts_are_refused(trainer_of):
    """Tokens of one text would see those of another."""
    packed = {"packing": True, "max_length": 32}
    trainer, _ = trainer_of(AdaptiveSFTTrainer, packed)
    with pytest.raises(UsageError, match="packing or padding_free"):
        trainer.train()
