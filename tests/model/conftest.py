import pytest
from datasets import Dataset
from transformers import Trainer, TrainingArguments, default_data_collator


@pytest.fixture
def trainer_of(random_text, tmp_path):
    """`trainer_of(model, callbacks, **arguments)`: 6 optimizer steps of 2 micro-batches of 2 rows."""

    def make(model, callbacks=(), **arguments):
        rows = [{"input_ids": row, "labels": row} for row in random_text(24, 12).tolist()]
        settings = {"max_steps": 6, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}
        settings |= {"save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True, "seed": 3}
        return Trainer(
            model=model,
            args=TrainingArguments(str(tmp_path / "out"), **settings | arguments),
            train_dataset=Dataset.from_list(rows),
            data_collator=default_data_collator,
            callbacks=list(callbacks),
        )

    return make
