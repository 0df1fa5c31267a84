"""What is no trial: what the model cannot have, and what comes to a method that was tried already."""

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from adaptive_bench import registry
from adaptive_bench.config_file import load_config
from adaptive_bench.method import method_class, training_spec
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import canonical
from adaptive_bench.testing.variants import method_specs
from adaptive_bench.tuning.refusals import Refusals, fitted
from adaptive_bench.tuning.space import Space
from adaptive_bench.tuning.study import Intermediate, Study


@pytest.fixture(autouse=True)
def _silent():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def refusals(text, params=()):
    """On the embedded model, which has six layers."""
    spec = MethodSpec.parse(text)
    return Refusals(Space.of(spec, params), load_config("smoke", {"methods": text, "model": "nano"}))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("gateskip", {"sparsity_weight": "1"}),
        ("gateskip", {"shape": "vector", "stride": "1"}),
        ("gateskip[loss=l1]", {"sparsity_weight": "0.1"}),
        ("calm", {"confidence": "softmax", "exit_interval": "1"}),
        ("calm[min_exit=4]", {"exit_interval": "1"}),
        ("free", {"shallow_layers": "2"}),
        ("router_tuned_mod", {"layers": "3"}),
        ("layerskip", {"rotation": "5"}),
        ("mod", {"every": "2", "capacity_start": "1"}),
    ],
)
def test_what_comes_to_the_defaults_is_no_trial(text, values):
    assert refusals(text)(values, {0: {}}) == "comes to the same method as trial 0, its defaults"


def test_a_rate_that_the_method_has_already_is_no_trial():
    space = ["train.method_learning_rate=log:1e-3:1"]
    refused = refusals("gateskip", space)
    config = refused.config.train.model_copy(update={"method_learning_rates": {"gateskip": 0.05}})
    refused = Refusals(refused.space, refused.config.model_copy(update={"train": config}))
    assert "trial 0" in refused({"train.method_learning_rate": "0.05"}, {0: {}})
    assert refused({"train.method_learning_rate": "0.01"}, {0: {}}) is None


def test_what_comes_to_an_earlier_trial_is_none():
    refused, earlier = refusals("calm"), {0: {}, 7: {"min_exit": "4", "exit_interval": "2"}}
    assert refused({"min_exit": "4", "exit_interval": "3"}, earlier) == "comes to the same method as trial 7"
    assert refused({"min_exit": "3", "exit_interval": "2"}, earlier) is None


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("calm", {"confidence": "state", "min_exit": "4", "exit_interval": "2"}),
        ("free", {"shallow_layers": "6"}),
        ("layerskip", {"curriculum": "rotational", "rotation": "6"}),
    ],
)
def test_what_the_model_cannot_have_is_refused_with_the_reason(text, values):
    reason = refusals(text)(values, {0: {}})
    assert "6 layers" in reason or "< 6" in reason


def test_a_count_is_searched_up_to_what_the_model_can_have():
    def searched(text, name):
        found = refusals(text)
        return str(fitted(found.space, found).ranges[name])

    assert searched("free", "shallow_layers") == "int:2:5"
    assert searched("router_tuned_mod", "layers") == "int:1:5"
    assert searched("calm", "min_exit") == "int:1:5"
    assert searched("gateskip", "stride") == "int:1:2"


def test_trials_of_early_exits_share_one_training():
    space = Space.of(MethodSpec("calm"), [])
    specs = {space.spec_with(space.text(point)) for point in space.points()}
    assert len(specs) == 128 and {training_spec(spec) for spec in specs} == {MethodSpec("calm")}


@pytest.mark.parametrize("name", registry.names("methods"))
def test_variants_of_a_method_come_to_something_else_than_its_defaults(name):
    """What a config comes to leaves out nothing that a variant changes."""
    come_to = [canonical(method_class(spec).parse_config(spec).on_model(6)) for spec in method_specs(name)[1:]]
    assert len({*come_to}) == len(come_to)


def opened(folder, text, params, trials):
    folder.mkdir(exist_ok=True)
    storage = JournalStorage(JournalFileBackend(str(folder / "journal.log")))
    refused = refusals(text, params)
    return Study("s", storage, folder / "locks", refused.space, trials, why=refused)


def run_trial(values):
    yield Intermediate(0.5, True, {})


def worked_off(study, work=run_trial):
    done = 0
    while study.work(work):
        done += 1
    return done


def test_a_space_without_further_values_ends_the_study_and_it_says_so(tmp_path):
    study = opened(tmp_path, "gateskip", ["stride=int:1:3"], 8)
    assert worked_off(study) == 3 and study.exhausted
    complete = [one.user_attrs["values"] for one in study.all if one.state is TrialState.COMPLETE]
    assert sorted(values.get("stride", "1") for values in complete) == ["1", "2", "3"]
    known = len(study.all)
    again = opened(tmp_path, "gateskip", ["stride=int:1:3"], 8)
    assert worked_off(again) == 0 and len(again.all) == known and again.exhausted


def test_refused_draws_are_no_trials_and_others_take_their_place(tmp_path):
    """The sampler repeats itself: what was best is near. Each trial is a method of its own all the same."""
    study = opened(tmp_path, "calm", [], 12)
    assert worked_off(study) == 12 and not study.left() and not study.exhausted
    counted = {one.number: one.user_attrs["values"] for one in study.all if "refused" not in one.user_attrs}
    refused = [one for one in study.all if "refused" in one.user_attrs]
    assert len(counted) == 12 and refused and all(one.user_attrs["reason"] for one in refused)
    for number, values in counted.items():
        others = {one: other for one, other in counted.items() if one != number}
        assert study._why(values, others) is None or not values


def test_trials_that_did_the_same_are_one(tmp_path):
    """A parameter that nothing reads: only what the trained models do shows it."""

    def inert(values):
        behaviour = "small" if float(values.get("sparsity_weight", 1.0)) < 0.1 else "large"
        yield Intermediate(0.5, True, {}, {}, behaviour)

    study = opened(tmp_path, "gateskip", ["sparsity_weight=log:1e-3:10"], 2)
    assert worked_off(study, inert) == 2
    refused = [one.user_attrs for one in study.all if "refused" in one.user_attrs]
    assert all("did exactly what trial 0 did" in about["reason"] for about in refused) and refused
    assert [one.state.name for one in study.all if "refused" not in one.user_attrs] == ["COMPLETE"] * 2


def test_a_study_ends_where_trained_trials_turn_out_to_be_one_again_and_again(tmp_path):
    trained = []

    def inert(values):
        trained.append(values)
        yield Intermediate(0.5, True, {}, {}, "the same")

    study = opened(tmp_path, "gateskip", ["sparsity_weight=log:1e-3:10"], 4)
    assert worked_off(study, inert) == 1 and study.exhausted
    assert len({str(values) for values in trained}) == len(trained) == 6  # the defaults, and five that did the same
