"""Sites that a model cannot do without are measured before a run is planned; who may spare them does."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from adaptive_bench.backbone import Site
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.headroom.subject import find_subjects
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.runs import about, plan, preflight, run, spared_sites
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.manifest import sparing
from adaptive_bench.testing.backbones import write_model_folder

SPARED = frozenset({Site(0, "mlp")})
ENTRY = {"spared": [[0, "mlp"]], "keep_first": False}


@pytest.fixture(scope="module")
def lopsided(tmp_path_factory):
    """A folder with a model whose MLP of layer 0 does nearly all."""
    folder = write_model_folder(tmp_path_factory.mktemp("lopsided"))
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for layer, block in enumerate(model.model.layers):
            block.mlp.down_proj.weight.mul_(1.0 if layer else 500.0)
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch):
    monkeypatch.setattr(spared_sites, "_measured", {})


def subject_of(folder, spec):
    (model,) = find_subjects(str(folder), [MethodSpec.parse(spec)], out=folder, device="cpu").models
    return model


def contents(whole):
    return {str(one.spec): one.content.get("eligible") for one in whole.trainings}, {
        str(one.spec): one.content.get("eligible") for one in whole.sweeps
    }


def test_what_was_measured_is_part_of_the_keys_it_applies_to(config_of, lopsided, lines):
    config = config_of("dense,random_skip,gateskip,static_depth,skiplayer@paper", model=lopsided, preset=None)
    whole = plan(config, lines)
    assert whole.sites.spared == SPARED
    assert [line for line in lines.lines if line.startswith("eligible: 3 of 4 sites; spared: MLP of layer 0 (")]
    trained, asked = contents(whole)
    assert trained == {"dense": None, "gateskip": ENTRY, "skiplayer": None}
    assert asked == {
        "dense": None,
        "random_skip": ENTRY,
        "gateskip": ENTRY,
        "static_depth": None,
        "skiplayer@paper": None,
    }
    (file,) = (config.out / "sites").iterdir()
    spared_sites._measured.clear()
    file.write_text(file.read_text().replace('"first_token": ', '"first_token": 99'))
    assert plan(config).sites.keep_first  # read, not measured again
    spared_sites._measured.clear()
    file.write_text("{")
    with pytest.raises(EnvironmentProblem, match="Remove it: it is measured again"):
        plan(config)


def test_a_plan_that_is_only_looked_at_measures_nothing(config_of, lopsided, lines):
    """It says so, and there is as much to do."""
    config = config_of("gateskip", model=lopsided, preset=None)
    found = preflight(config, lines, measures=False)
    assert found.plan.sites_left and found.plan.sites is None and not (config.out / "sites").exists()
    assert any(line.startswith("eligible: measured when the run begins") for line in about(config, found))
    whole = plan(config)
    assert not whole.sites_left and len(whole.sweeps) == len(found.plan.sweeps)
    assert preflight(config, measures=False).plan.sites == whole.sites


def test_all_sites_where_it_is_asked_for_and_in_the_presets_of_papers(config_of, lopsided):
    default = plan(config_of("gateskip", model=lopsided, preset=None))
    for change in ({"eligible": "all"}, {"preset": "paper_lambada"}, {"preset": "nano_paper"}):
        other = plan(config_of("gateskip", **({"model": lopsided, "preset": None} | change)))
        assert other.sites is None and "eligible" not in other.trainings[0].content
        assert other.trainings[0].folder.name != default.trainings[0].folder.name
    of_papers = plan(config_of("skiplayer@paper", model=lopsided, preset=None, eligible="measured"))
    assert contents(of_papers)[1] == {"skiplayer@paper": ENTRY}


def test_a_registered_model_is_measured_where_that_is_asked_for(config_of):
    """With nothing spared no key changes: no site of nano costs ten times the median."""
    default, asked = (
        plan(config_of("gateskip", model="nano")),
        plan(config_of("gateskip", model="nano", eligible="measured")),
    )
    assert default.sites is None and asked.sites is not None and not asked.sites.spared
    assert [one.folder for one in default.trainings] == [one.folder for one in asked.trainings]


def test_measuring_needs_text(config_of, lopsided, monkeypatch):
    monkeypatch.setattr(spared_sites, "draw_site_text", lambda config: [])
    assert plan(config_of("gateskip", model=lopsided, preset=None)).sites is None
    with pytest.raises(UsageError, match="or let tokens skip everywhere with --eligible all"):
        plan(config_of("gateskip", model=lopsided, preset=None, eligible="measured"))


def test_a_run_spares_what_was_measured(config_of, lopsided):
    """Training, evaluation and the untrained control on dense weights; the table says where tokens may skip."""
    config = config_of("random_skip,gateskip", model=lopsided, preset=None)
    outcome = run(config)
    assert outcome.exit_code == 0
    for sweep in plan(config).sweeps:
        said = sweep.record.read("dial")
        assert said["eligible"] == "attention of layers 0, 1, MLP of layer 1"
        model = AdaptiveModel.from_pretrained(sweep.training.checkpoint, sweep.spec, **sparing(sweep.content))
        assert model.method.spared == SPARED
        assert said["max_saved_tokens"] == pytest.approx(model.method.max_saving)
    for spec in config.methods:  # weights of the control are the dense model's, which spares nothing
        assert AdaptiveModel.load(outcome.folder, spec).method.spared == SPARED
        assert subject_of(outcome.folder, spec).method.spared == SPARED
    assert run(config).exit_code == 0  # nothing is left


def test_a_row_says_that_the_first_token_skips_nothing(config_of, lopsided):
    config = config_of("random_skip", model=lopsided, preset=None, train={"steps": 0})
    plan(config)
    (file,) = (config.out / "sites").iterdir()
    spared_sites._measured.clear()
    file.write_text(file.read_text().replace('"first_token": ', '"first_token": 99'))
    said = "attention of layers 0, 1, MLP of layer 1, but no first token"
    assert {row["eligible"] for row in run(config).rows} == {said}
