"""What users get wrong, a row for each kind of mistake: refused with its kind of error and exit code, in words, soon,
and not as a defect. The words stand in the message, white space aside.
"""

import time

import pytest

import adaptive_bench.runs  # noqa: F401 - imported beforehand: the clock is for what a mistake costs
from adaptive_bench import registry

pytestmark = pytest.mark.slow

# `PARSER` is the kind of a mistake that the parser of the command line finds.
USAGE, ENVIRONMENT, PLUGIN, PARSER = "Usage error", "Environment problem", "Plugin fault", "Usage"
EXIT_CODES = {USAGE: 2, PARSER: 2, ENVIRONMENT: 1, PLUGIN: 1}
# Of this process; 3 are asked for on a free core, and two processes on one core's two threads take twice as long.
MOST_SECONDS = 8.0
LONGEST = 6000  # characters
ARGUMENTS = [
    # No command of that name; too few values.
    ("runn", PARSER, "runn"),
    ("speculate nano", PARSER, "--tasks"),
    # Lists.
    ("run --methods dense,mod,dense", USAGE, "every item of a list stands there once"),
    # Numbers out of their range, and what is no number.
    ("run --seeds 1001", USAGE, "--seeds is wrong: a run has from 1 to 1000 seeds, got 1001"),
    ("run --seeds one", USAGE, "--seeds is wrong: should be a valid integer"),
    ("run --limit 0", USAGE, "--limit is wrong"),
    ("run --levels 5", USAGE, "--levels is wrong: should be less than 1, got 5"),
    ("run --train-steps 999999999999", USAGE, "Lower --train-steps"),
    ("time --batch 0", USAGE, "--batch is wrong: should be greater than or equal to 1, got '0'"),
    # Words that are none of those there are.
    ("run --methods gateskp", USAGE, "Did you mean 'gateskip'?"),
    ("run --methods gateskip@papr", USAGE, "Semantics must be one of"),
    ("run --methods gateskip[shap=scalar]", USAGE, "Did you mean 'shape'?"),
    ("run --methods gateskip[shape=round]", USAGE, "shape is wrong"),
    ("run --methods gateskip[sparsity_weight=nan]", USAGE, "finite"),
    ("run --tasks gsm8", USAGE, "Did you mean 'gsm8k'?"),
    ("run --tasks piqa", USAGE, "--train-on nano_math"),
    ("run --config nanno", USAGE, "Did you mean 'nano'?"),
    # What does not go together.
    ("inspect nano --tasks nano_math --methods gateskip", USAGE, "a method that needs none"),
    ("new-method gateskip", USAGE, "exists already"),
    ("run --resources nowhere", USAGE, "Add --launcher slurm"),
    # Places.
    ("run --config absent.yaml", ENVIRONMENT, "absent.yaml"),
    ("run --data-dir absent", ENVIRONMENT, "data folder must exist"),
    ("show nowhere", USAGE, "no such run"),
    ("status --out nowhere", ENVIRONMENT, "'nowhere' does not exist"),
    ("leaderboard", ENVIRONMENT, "adaptive-bench run"),
]
# Files given with --config; the file is `mine.yaml`.
_GOOD = "methods: [dense]\ntasks: [nano_qa_ll]\n"
CONFIGS = [
    ("", USAGE, "must hold keys and values"),
    (b"\xff\xfe\x00methods", ENVIRONMENT, "cannot be read"),
    ("methods: [mod, static_depth[trained=true]]\n", USAGE, "quote what has brackets"),
    ("methods: [dense]\n", USAGE, "'tasks' in mine.yaml is needed"),
    (_GOOD + "methods: [mod]\n", USAGE, "every key stands once, got 'methods' 2 times"),
    (_GOOD + "metods: [mod]\n", USAGE, "Did you mean 'methods'?"),
    (_GOOD + "train: {limit: 1}\n", USAGE, "'train.limit' in mine.yaml does not exist. Write it as evaluation.limit"),
    (_GOOD + "train: {batch_size: 32, accumulation: 5}\n", USAGE, "must divide"),
    (_GOOD + "model: no\n", USAGE, "'model' in mine.yaml is wrong: should be a valid string, got False"),
]
# What does not fit the model: `run --dry-run` on it.
MODELS = [
    ("--model nanno", ENVIRONMENT, "Did you mean 'nano'?"),
    ("--model file", ENVIRONMENT, "name its folder"),
    ("--model {here}", ENVIRONMENT, "config.json"),
    ("--config nano --model {model}", USAGE, "is for nano and nano_qwen3, got the model"),
    ("--model {model} --device cuda:99", USAGE, "A device is"),
    ("--model {model} --num-fewshot 100000", ENVIRONMENT, "Check the data and --num-fewshot"),
    ("--model {model} --tasks nano_qa --num-fewshot 20", USAGE, "context of 512 tokens"),
    ("--model {model} --out file/below", ENVIRONMENT, "--out"),
]


@pytest.fixture
def refused(command, monkeypatch, tmp_path, model_folder):
    """`refused(arguments, kind, words)`: the command ends as it must."""
    monkeypatch.setattr(registry, "_registered", {})

    def check(arguments, kind, words):
        if arguments.startswith("run"):
            arguments += " --dry-run"  # should nothing be wrong with it after all
        start_s = time.process_time()
        result = command(*arguments.format(model=model_folder, here=tmp_path).split())
        took_s = time.process_time() - start_s
        told = " ".join(result.stderr.split())
        assert result.exit_code == EXIT_CODES[kind], told or result.stdout
        assert "Defect" not in told and "Traceback" not in told and f"{kind}:" in told
        assert "".join(words.split()) in "".join(told.split()), told
        assert len(result.stderr) < LONGEST and not set(result.stderr) & set("\x1b\x07\x00")
        assert took_s < MOST_SECONDS

    return check


def _write(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize(("arguments", "kind", "words"), ARGUMENTS)
def test_arguments(refused, arguments, kind, words):
    refused(arguments, kind, words)


@pytest.mark.parametrize(("content", "kind", "words"), CONFIGS, ids=range(len(CONFIGS)))
def test_config_files(refused, tmp_path, content, kind, words):
    _write(tmp_path / "mine.yaml", content)
    refused("run --config mine.yaml", kind, words)


def test_a_plugin_file_registers_methods(refused, tmp_path):
    _write(tmp_path / "mine.py", "from adaptive_bench.registry import register\nregister('methods', 'mine')(object)\n")
    how = "--methods mine --model {model} --tasks nano_qa_ll --limit 4"
    refused(f"run --plugin mine.py {how}", PLUGIN, "subclass of adaptive_bench.method.Method")


@pytest.mark.parametrize(("arguments", "kind", "words"), MODELS)
def test_models(refused, tmp_path, arguments, kind, words):
    (tmp_path / "file").touch()
    refused(f"run {'' if '--tasks' in arguments else '--tasks nano_qa_ll '}--limit 4 {arguments}", kind, words)
