"""Plugins that misbehave: each has no effect on the others, or ends in an error that names it."""

import re
import statistics
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from adaptive_bench import guard, registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import PluginFault
from adaptive_bench.recipe import EvalRecipe, TrainRecipe
from adaptive_bench.runs import plan, run

pytestmark = pytest.mark.slow

PLUGIN = """
import atexit, builtins, gc, json, os, random, shutil, signal, subprocess, sys, threading, time, warnings
from pathlib import Path
import numpy, scipy.stats, torch, transformers
from torch.nn import functional as F
from adaptive_bench import registry
from adaptive_bench.store import atomic
from adaptive_bench.engine import ledger
from adaptive_bench.methods.dense import Dense
from transformers.activations import ACT2FN
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama import modeling_llama

OUT = Path({out!r})

class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **kwargs or {{}})

def act(self=None):
    {act}

{at_import}

@registry.register("methods", {name!r})
class Misbehaving(Dense):
    @classmethod
    def training_spec(cls, config, spec):
        return spec if {trains!r} else super().training_spec(config, spec)

    def {hook}:
        act(self)
        return super().{call}
"""
# What a plugin does, and what the error calls it.
CHANGES = {
    "F.silu = lambda x, inplace=False: x": "torch.nn.functional.silu",
    "F.silu.__code__ = (lambda input, inplace=False: input).__code__": "the code of torch.nn.functional.silu",
    "torch.Tensor.softmax = lambda self, dim: self": "torch.Tensor.softmax",
    "torch.Tensor.__add__ = torch.Tensor.__sub__": "torch.Tensor.__add__",
    "modeling_llama.LlamaMLP.forward = lambda self, x: x": "LlamaMLP.forward",
    "ledger.Ledger.macs = lambda self, phase: 0": "adaptive_bench.engine.ledger.Ledger.macs",
    "registry.sum = max": "adaptive_bench.registry.sum",
    "json.dumps = lambda *a, **k: '{}'": "json.dumps",
    "sys.modules['json'] = random": "the module json",
    "builtins.sum = max": "builtins.sum",
    "Path.open = None": "pathlib.Path.open",
    "time.perf_counter = lambda: 0.0": "time.perf_counter",
    "numpy.mean = numpy.sum": "numpy.mean",
    "type(scipy.stats.t).isf = lambda self, q, *shape: 0.0": "t_gen.isf",
    "transformers.TokenizersBackend._encode_plus = None": "TokenizersBackend._encode_plus",
    "ALL_ATTENTION_FUNCTIONS.register('sdpa', lambda module, q, *rest, **how: (q, None))": "_global_mapping['sdpa']",
    "ACT2FN['silu'] = ACT2FN['gelu']": "ACT2FN['silu']",
    "torch.set_grad_enabled(False)": "torch.set_grad_enabled",
    "torch.set_default_dtype(torch.float64)": "torch.set_default_dtype",
    "torch.set_default_device('meta')": "torch.set_default_device",
    "torch.set_num_threads(torch.get_num_threads() + 1)": "torch.set_num_threads",
    "torch.use_deterministic_algorithms(True, warn_only=True)": "torch.use_deterministic_algorithms",
    "torch.set_float32_matmul_precision('medium')": "torch.set_float32_matmul_precision",
    "torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark": "torch.backends.cudnn.benchmark",
    "torch.set_flush_denormal(True)": "torch.set_flush_denormal",
    "torch.autograd.set_detect_anomaly(True)": "torch.autograd.set_detect_anomaly",
    "torch.set_autocast_enabled('cpu', True)": "torch.autocast on cpu",
    "torch.nn.modules.module.register_module_forward_hook(lambda *a: None)": "hooks on all modules",
    "Mode().__enter__()": "a torch function mode",
    "os.environ['ADAPTIVE_BENCH_DATA'] = '/nowhere'": "the environment variable ADAPTIVE_BENCH_DATA",
    "os.chdir('/')": "the working directory",
    "os.umask(0o077)": "umask",
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)": "what happens at SIGTERM",
    "gc.disable()": "the garbage collector",
    "sys.setrecursionlimit(5000)": "the recursion limit",
    "warnings.simplefilter('error')": "warnings that are errors",
}
_THREAD = "threading.Thread(target=lambda: time.sleep(3600)).start()"
_PROCESS = "subprocess.Popen(['sleep', '3600'])"
# What is done in `decide` while the method is evaluated; `None` if it works and harms nobody.
WHILE_EVALUATED = {
    "silu": ("F.silu = lambda x, inplace=False: x", "torch.nn.functional.silu"),
    "dtype": ("torch.set_default_dtype(torch.float64)", "torch.set_default_dtype"),
    "seeds": ("random.seed(0); numpy.random.seed(0); torch.manual_seed(0); sys.stdin.read()", None),
    "leftovers": (f"atexit.register(lambda: time.sleep(3600)); {_THREAD}; {_PROCESS}", None),
    "grad": ("torch.set_grad_enabled(False)", None),  # the harness asks in inference mode, which ends with the call
    "records": ("[one.write_text('{}') for one in OUT.glob('records/*/*.json')]", "records of others"),
    "removal": ("[shutil.rmtree(one) for one in OUT.glob('records/*')]", "records of others"),
    "exit": ("sys.exit(0)", "SystemExit"),
    "hog": ("torch.empty(1 << 50)", "allocate memory"),
    "abort": ("os.abort()", "by the signal SIGABRT"),
    "end": ("os._exit(0)", "with the exit code 0"),
}
WHILE_TRAINED = {
    "well_behaved": ("pass", None),
    "trained_silu": ("F.silu = lambda x, inplace=False: x", "torch.nn.functional.silu"),
    "trained_grad": ("torch.set_grad_enabled(False)", "torch.set_grad_enabled"),
}
CASES = WHILE_EVALUATED | WHILE_TRAINED


def config_of(methods: list[str], model: Path, out: Path) -> RunConfig:
    return RunConfig(
        methods=tuple(methods),
        tasks=("nano_qa_ll",),
        model=str(model),
        out=out,
        levels=(0.0,),
        match_on="tokens",
        device="cpu",
        train=TrainRecipe(steps=2, batch_size=2, warmup_steps=1, max_length=400),
        evaluation=EvalRecipe(batch_size=4, limit=2, calibration_examples=2, grid=(0.0,)),
    )


def results(config: RunConfig) -> dict[str, object]:
    """The weights, losses, points and answers of dense."""
    (training,) = (training for training in plan(config).trainings if training.spec.name == "dense")
    (sweep,) = (sweep for sweep in plan(config).sweeps if sweep.spec.name == "dense")
    files = ("train.jsonl", "data.json", "checkpoint/method.safetensors", "checkpoint/backbone/model.safetensors")
    point = sweep.record.point(0.0)
    return {name: (training.folder / name).read_bytes() for name in files} | {
        "point": (point.scores, point.savings, point.report, point.data),
        "answers": sweep.record.samples(0.0),
    }


def write(folder: Path, name: str, act: str, out: Path, at_import: str = "") -> Path:
    trains = name in WHILE_TRAINED
    hook, call = (
        ("begin_step(self, *about)", "begin_step(*about)") if trains else ("decide(self, view)", "decide(view)")
    )
    path = folder / f"{name}.py"
    path.write_text(
        PLUGIN.format(name=name, act=act, at_import=at_import, hook=hook, call=call, trains=trains, out=str(out))
    )
    return path


@pytest.fixture(scope="module")
def together(model_folder, tmp_path_factory):
    """Failures of a run of dense beside all of them, and dense's results in it and in a run of its own."""
    home = tmp_path_factory.mktemp("misbehaving")
    known, registry._registered = registry._registered, {}
    try:
        alone = config_of(["dense"], model_folder, home / "alone")
        assert not run(alone, jobs=1).failures
        for name, (act, _) in CASES.items():
            registry.load_plugin(write(home, name, act, home / "together"))
        config = config_of(["dense", *CASES], model_folder, home / "together")
        failures = run(config, jobs=1).failures
        yield failures, results(config), results(alone)
    finally:
        registry._registered = known


def test_dense_is_what_it_is_alone(together):
    _, beside, alone = together
    assert beside == alone


@pytest.mark.parametrize("name", CASES)
def test_a_misbehaving_plugin_is_named_or_harmless(together, name):
    failures, said = together[0], CASES[name][1]
    mine = [str(failure) for failure in failures if failure.work.startswith((f"train {name},", f"evaluate {name} on"))]
    if said is None:
        assert mine == []
    else:
        assert mine and all("Plugin fault" in text for text in mine), mine
        assert any(said in text and name in text for text in mine), mine  # beside what came of it


@pytest.fixture(scope="module")
def before():
    """This process before any of it."""
    import adaptive_bench.methods.dense  # noqa: F401

    return guard.State()


@pytest.mark.parametrize("act", CHANGES)
def test_a_plugin_that_changes_what_is_not_its_own_is_not_loaded(act, tmp_path, monkeypatch, before):
    monkeypatch.setattr(registry, "_registered", {})
    with pytest.raises(PluginFault, match=re.escape(CHANGES[act])) as raised:
        registry.load_plugin(write(tmp_path, "changing", act, tmp_path, "act()"))
    assert "changing.py" in str(raised.value)
    assert [change for change in before.changes() if "PYTEST_CURRENT_TEST" not in change.what] == []
    assert registry.names("methods").count("changing") == 0


def test_what_was_made_while_something_was_changed_is_not_kept():
    with pytest.raises(PluginFault, match=r"my plugin changed torch\.set_default_dtype"), guard.watching("my plugin"):
        guard.check()
        torch.set_default_dtype(torch.float64)
        guard.check()
    assert torch.get_default_dtype() is torch.float32
    guard.check()


def test_what_a_plugin_adds_is_its_own_business():
    with guard.watching("my plugin"):
        torch.nn.functional.my_activation = torch.relu
        torch.manual_seed(7)
    del torch.nn.functional.my_activation


def test_a_library_that_a_plugin_is_the_first_to_load_is_looked_at_too(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.delitem(sys.modules, "scipy.stats._stats_py", raising=False)
    act = "import scipy.stats._stats_py as late; late.mode = lambda a: 0.0"
    with pytest.raises(PluginFault, match=re.escape("scipy.stats._stats_py.mode")):
        registry.load_plugin(write(tmp_path, "first", act, tmp_path, "act()"))
    assert "scipy.stats._stats_py" not in sys.modules


def test_a_library_that_executes_itself_once_more_is_what_it_was(tmp_path, monkeypatch):
    """As the package of transformers does when it loads a model's module; a function of a plugin in it is seen."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setitem(sys.modules, "statistics", statistics)
    again = "import importlib.util, sys; spec = importlib.util.find_spec('statistics')"
    again += "; sys.modules['statistics'] = new = importlib.util.module_from_spec(spec); spec.loader.exec_module(new)"
    registry.load_plugin(write(tmp_path, "again", again, tmp_path, "act()"))
    assert sys.modules["statistics"] is not statistics
    with pytest.raises(PluginFault, match=re.escape("statistics.mode")):
        registry.load_plugin(write(tmp_path, "more", f"{again}; new.mode = lambda a: 0.0", tmp_path, "act()"))


def test_objects_of_libraries_are_asked_for_nothing(monkeypatch):
    class Lazy:
        def __getattr__(self, name):
            raise AssertionError("Torch not compiled with CUDA enabled")

    loaded = ModuleType("torch.nn.loaded_by_a_test")
    loaded.lazy = Lazy()
    with guard.watching("a plugin"):  # of a library that is loaded in the block, whose objects load what they stand for
        monkeypatch.setitem(sys.modules, loaded.__name__, loaded)
