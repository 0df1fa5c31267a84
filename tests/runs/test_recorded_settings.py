"""What a configuration says of its model is held to what the records know of it."""

import pytest

from adaptive_bench.runs.recorded_settings import _model_of

MODELS = {"nano": "1" * 16, "other": "2" * 16}


@pytest.mark.parametrize(
    ("recorded", "said", "known"),
    [
        ("1" * 16, "nano", "nano"),
        ("1" * 16, "llama-3.2-1b", "nano"),  # whatever a copy of its folder is called
        ("3" * 16, "nano", f"another model ({'3' * 16})"),
        ("3" * 16, "my-model", "my-model"),  # a folder that is not here
        ("meta-llama/Llama-3.2-1B@0a1b", "meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.2-1B"),
    ],
)
def test_a_model_is_called_what_its_records_know(recorded, said, known):
    assert _model_of(recorded, said, MODELS) == known
