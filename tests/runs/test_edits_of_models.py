"""Edits of the model, a method and the config between two runs, one at a time. After each the table is that of a fresh
output folder, or the command is refused, or a warning is given, and it is said which (`pytest -rP` prints it).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from edited_world import Change, Edits, World, other_weights

pytestmark = pytest.mark.slow
EDITS = Edits()
edit, replaced = EDITS.edit, EDITS.replaced


def configured(name: str, expected: str = "right", **changes: Any) -> None:
    edit(name, "input", expected)(lambda world: changes)


def of_json(file: str, change: Callable[[Any], None]) -> Callable[[World], None]:
    def make(world: World) -> None:
        values = json.loads((world.folder / file).read_text())
        change(values)
        (world.folder / file).write_text(json.dumps(values))

    return make


def swap_tokens(values: dict[str, Any]) -> None:
    vocabulary = values["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]


edit("tokenizer: vocabulary")(of_json("model/tokenizer.json", swap_tokens))
edit("tokenizer: settings")(of_json("model/tokenizer_config.json", lambda values: values.update(eos_token="<pad>")))
edit("tokenizer: special tokens")(
    lambda world: (world.folder / "model/special_tokens_map.json").write_text('{"eos_token": "<pad>"}') and None
)
edit("chat template beside the tokenizer")(
    lambda world: (world.folder / "model/chat_template.jinja").write_text("{{ messages[0]['content'] }}") and None
)
edit("generation settings of the model")(
    of_json("model/generation_config.json", lambda values: values.update(eos_token_id=5))
)
edit("model config: rope_theta")(
    of_json(
        "model/config.json",
        lambda values: values.update(rope_theta=17.0, rope_parameters={"rope_type": "default", "rope_theta": 17.0}),
    )
)
edit("model config: norm epsilon")(of_json("model/config.json", lambda values: values.update(rms_norm_eps=0.5)))


edit("weights: size and time kept")(other_weights)


replaced("method: a constant", "mine.py", "SALT = 3", "SALT = 4", "code")
replaced("method: a comment", "mine.py", "SALT = 3", "SALT = 3  # chosen", "code")
replaced("method: a constant, process goes on", "mine.py", "SALT = 3", "SALT = 4", expected=r"refused: .*mine\.py")
replaced("method: helper module", "edited_method_helper.py", "1.0", "0.5", "code")
replaced("method: file of numbers beside it", "factor.json", "1.0", "0.5", "code")
replaced("method: base class in another plugin", "parent.py", "salt = 0", "salt = 9", "code")
replaced("method: default of a parameter", "parent.py", "Field(0.1", "Field(0.4", "code")

configured("config: limit", evaluation={"limit": 3})
configured("config: batch size of answers", evaluation={"batch_size": 2})
configured("config: worked examples", evaluation={"num_fewshot": 0})
configured("config: grid", evaluation={"grid": (0.0, 0.2)})
configured("config: calibration examples", evaluation={"calibration_examples": 2})
configured("config: seed", seeds=(2,))
configured("config: steps", train={"steps": 1})
configured("config: learning rate", train={"learning_rate": 0.5})
configured("config: levels", levels=(0.0, 0.2))
configured("config: axis", match_on="net")
configured("config: parameter of a method", methods="dense,mine[share_end=0.3]")


@edit("config: other training tasks", expected="refused: .*of_file")
def _(world: World) -> Change:
    return {"train_on": ("of_file",)}


@pytest.mark.parametrize("name", list(EDITS))
def test_an_edit_is_right_or_noticed(world: World, name: str) -> None:
    told = EDITS.outcome(world, name)
    print(f"{name}: {told}")
    assert re.match(EDITS[name][2], told, re.DOTALL)
