import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.saving import load_tokenizer


@pytest.fixture
def folder(model_folder, tmp_path):
    """A saved model that reads bytes, of large weights and a short context."""
    config = AutoConfig.from_pretrained(model_folder, max_position_embeddings=128, initializer_range=0.3)
    torch.manual_seed(0)
    model = AdaptiveModel.build(AutoModelForCausalLM.from_config(config), "random_skip")
    model.save_pretrained(tmp_path / "saved", AutoTokenizer.from_pretrained(model_folder))
    return tmp_path / "saved"


@pytest.fixture
def generate(command, folder):
    """`generate("--saving 0.4", "A prompt")`: the command on the saved model, or on `model=`."""
    return lambda options, *more, model=folder: command(f"generate {model} {options}", *more)


def test_text_on_stdout_and_what_was_saved_on_stderr_or_all_as_json(generate):
    result = generate("--saving 0.4 --max-new-tokens 12", "Hello there")
    assert result.exit_code == 0, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("saved")]
    assert len(line) <= 80 and "% tokens" in line and "% net" in line and "11 read" in line and "11 written" in line
    assert result.stdout.strip() and "saved" not in result.stdout
    found = json.loads(generate("--json --saving 0.5 --max-new-tokens 20 One Another").stdout)
    assert [pair["prompt"] for pair in found["texts"]] == ["One", "Another"]
    assert found["claimed_saving"] == pytest.approx(0.5) and 0.3 < found["report"]["saved"]["tokens"] < 0.7


def test_chat_and_stop_strings_are_those_of_transformers(generate, folder):
    """The prompt of its `apply_chat_template` with system and thinking, the text of its `generate` with the strings;
    greedy, as --temperature 0 says, of a model whose generation config asks for samples too.
    """
    tokenizer, model = load_tokenizer(folder), AdaptiveModel.from_pretrained(folder)
    model.generation_config.update(do_sample=True, temperature=3.0)
    model.save_pretrained(folder)
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[bot]{% endif %}"
        "{% if enable_thinking is defined and not enable_thinking %}!{% endif %}"
    )
    tokenizer.save_pretrained(folder)
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    how = {"add_generation_prompt": True, "return_dict": True, "return_tensors": "pt"}
    asked = tokenizer.apply_chat_template(turns, enable_thinking=False, **how)
    plain = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0}
    whole = model.backbone_model.generate(**asked, **plain)[0, asked.input_ids.shape[1] :]
    stop = next(sign for sign in tokenizer.decode(whole[2:-2]) if sign.isascii() and sign.isprintable())
    own = model.backbone_model.generate(**asked, **plain, stop_strings=[stop, "###"], tokenizer=tokenizer)
    turn = ("Hello", "--chat-template", "--system-prompt", "Be brief.", "--no-enable-thinking")
    limits = ("--max-new-tokens", "20", "--stop-strings", stop, "--stop-strings", "###")
    result = generate("--json", *turn, *limits)
    assert result.exit_code == 0, result.stderr
    written = own[0, asked.input_ids.shape[1] :]
    text = tokenizer.decode(written, skip_special_tokens=True)
    assert json.loads(result.stdout)["texts"] == [{"prompt": "Hello", "text": text}] and len(written) < 20


def test_sampling_depends_on_the_seed(generate):
    how = "--max-new-tokens 9 Hello --temperature 2 --seed"
    one, again, other = (generate(f"{how} {seed}").stdout for seed in (1, 1, 2))
    assert one == again != other


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--saving 15", "0.15 is 15"),
        ("--saving 0.1 --dial 0.1", "one dial"),
        ("--system-prompt Brief.", "Add --chat-template"),
        ("--chat-template", "has none"),
        ("--method gateskip", "random_skip"),
    ],
)
def test_mistakes(generate, arguments, said):
    result = generate(f"Hello {arguments}")
    assert result.exit_code == 2 and said in result.said


def test_a_model_without_its_tokenizer_is_none(generate, folder):
    (folder / "tokenizer_config.json").unlink()
    result = generate("Hello")
    assert result.exit_code == 1 and "tokenizer" in result.stderr


def test_a_dial_that_skips_nothing_and_a_text_that_the_context_ends_are_noted(generate):
    assert "Nothing was skipped. Give --saving" in generate("--max-new-tokens 4 Hello").stderr
    for dial in ("--saving 0.3", "--dial 0"):
        assert "--saving" not in generate(f"{dial} --max-new-tokens 4 Hi").stderr
    long = "Hello there " * 10
    ended = generate("--max-new-tokens 20", long)
    assert ended.exit_code == 0 and "Note: A text ends with the model's context of 128 tokens" in ended.said
    assert "Note:" not in generate("--max-new-tokens 8", long).stderr


def test_savings_are_those_of_the_stored_calibrations(generate, folder):
    model = AdaptiveModel.build(AdaptiveModel.from_pretrained(folder).backbone_model, "gateskip").eval()
    home = folder.with_name("gated")
    model.save_pretrained(home, load_tokenizer(folder))
    for name, most in (("one", 0.12345), ("two", 0.3)):
        ids = torch.randint(2, 250, (4, 30), generator=torch.Generator().manual_seed(0))
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        model.calibrate([batch | {"continuation_mask": torch.arange(30).expand_as(ids) >= 15}], [most])
        model.saving = most
        model.store_calibration(home, name, {most: model.dial}, name)
    several = generate("--saving 0.1 Hi", model=home)
    assert several.exit_code == 2 and "--calibration), one of: one, two." in several.said
    beyond = generate("--saving 0.9 --calibration one Hi", model=home)
    assert beyond.exit_code == 2 and "got saving 0.9 with savings up to 0.123 calibrated" in beyond.said
    done = generate("--saving 0.123 --calibration one --max-new-tokens 4 Hi", model=home)
    assert done.exit_code == 0 and "Nothing was skipped" not in done.stderr


def test_the_plugin_of_a_run_is_loaded_with_it(generate, monkeypatch, tmp_path):
    (tmp_path / "coast.py").write_text("raise ImportError('loaded')\n")
    monkeypatch.setattr("adaptive_bench.cli.options.plugins_in", lambda run: [Path("/gone.py"), tmp_path / "coast.py"])
    result = generate("--method coast Hello")
    assert result.exit_code == 1 and "coast.py" in result.said and "loaded" in result.said
