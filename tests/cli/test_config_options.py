import json
from types import SimpleNamespace

import pytest

from adaptive_bench.config import keys, load_config, part_of
from adaptive_bench.tuning import StudyResult


@pytest.fixture
def dry_run(command, monkeypatch):
    """`dry_run(arguments)`: the config of a run that is not carried out."""
    configs = []
    monkeypatch.setattr("adaptive_bench.cli.run.print_plan", lambda config, *_: configs.append(config))

    def config_of(arguments):
        result = command(f"run --dry-run {arguments}")
        assert result.exit_code == 0, result.stderr
        return configs[-1]

    return config_of


def test_any_key_can_be_set(dry_run):
    config = dry_run(
        "--set train.batch_size=8 --set 'levels=[0, 0.3, 0.1]' --set match_on=core --set seeds=2,3 "
        "--set train.method_learning_rates.gateskip[shape=scalar,b=0.5]=0.1 --set train.lora.rank=4 --train-steps 9 "
        "--limit 5 "
        "--set 'evaluation={calibration: pooled}'"
    )
    nano = load_config("nano")
    assert (config.train.batch_size, config.levels, config.match_on) == (8, (0.0, 0.1, 0.3), "core")
    rates = {"gateskip[shape=scalar,b=0.5]": 0.1}
    assert config.train.method_learning_rates == nano.train.method_learning_rates | rates
    assert config.seeds == (2, 3) and config.train.lora is not None and config.train.lora.rank == 4
    assert (config.evaluation.limit, config.evaluation.calibration) == (5, "pooled")
    assert config.train.steps == 9 != nano.train.steps  # two ways to give keys of one part are no conflict


def test_what_is_set_wins_over_a_file_which_wins_over_its_preset(dry_run, tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: nano\ntrain: {batch_size: 4, steps: 7}\n")
    train = dry_run("--config mine.yaml --set train.batch_size=8 --set train.target=null").train
    assert (train.batch_size, train.steps, train.learning_rate) == (8, 7, load_config("nano").train.learning_rate)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--set batch_size=3", "Write it as train.batch_size or evaluation.batch_size"),
        ("--set train.batch_size", "--set takes KEY=VALUE"),
        ("--set train.betas=[1", "The value of --set train.betas is not valid YAML"),
        ("--set train.steps=3 --train-steps 3", "got it by --train-steps and --set train.steps"),
        ("--set 'train={steps: 3}' --train-steps 3", "got it by --train-steps and --set train"),
        ("--set train.lora=null --set train.lora.rank=3", "--set train.lora and --set train.lora.rank"),
        ("--any-model --set for_models=null", "--any-model"),
    ],
)
def test_what_cannot_be_set_is_said(command, arguments, message):
    result = command(f"run {arguments}")
    assert result.exit_code == 2 and message in result.said


def test_every_key_is_listed_with_what_it_is(command):
    rows = {row["name"]: row for row in json.loads(command("list keys --json").stdout)}
    assert set(rows) >= {path for path, field in keys().items() if part_of(field) is None}
    assert all(row["description"] not in ("", "None") for row in rows.values())
    assert rows["methods"]["required"] and rows["train.lora.rank"]["default"] == 16
    named = [row["name"] for row in json.loads(command("list keys train --json").stdout)]
    assert named == [name for name in rows if name.startswith("train.")]
    assert command("list keys trai").exit_code == 2


@pytest.fixture
def tuned(monkeypatch):
    """Configs of the studies that are begun; each ends with `tuned.result`."""
    found = SimpleNamespace(configs=[], result=StudyResult("first", {"objective": "area"}, ()))
    begun = found.configs.append
    monkeypatch.setattr("adaptive_bench.tuning.tune", lambda config, *_, **__: begun(config) or found.result)
    return found


def test_tuning_takes_keys_too_and_says_how_to_run_the_best(command, tuned):
    trial = SimpleNamespace(method="mod", number=0, values_text="", state="complete", value=0.5, seconds_text="1 + 2")
    tuned.result = SimpleNamespace(
        name="first", definition={"objective": "area"}, trials=[trial], confirmed=[], best={"mod": trial},
        default=lambda method: trial, notes=["It is over.", "at the edge"],
    )  # fmt: skip
    done = command("tune --methods mod --seeds 2 --set train.batch_size=8")
    (config,) = tuned.configs
    assert (config.methods, config.seeds, config.train.batch_size) == (("mod",), (1, 2), 8)
    assert all(text in done.stdout for text in ("It is over.", "1 + 2", "at the edge"))
    assert "run --config tune --methods mod --tuned first" in done.stdout, done.stderr
    wrong = command("tune --methods mod --set methods=gateskip")
    assert wrong.exit_code == 2 and "--set methods and --methods" in wrong.said


@pytest.mark.parametrize("preset", ["rates", "steps"])
def test_a_preset_takes_one_seed_of_its_config_unless_told(command, tuned, preset):
    for more in ("", "--seeds 3 --set train.steps=9"):
        assert command(f"tune --preset {preset} --config nano_all --methods mod {more}").exit_code == 0
    assert [config.seeds for config in tuned.configs] == [(1,), (1, 2, 3)] and tuned.configs[1].train.steps == 9
