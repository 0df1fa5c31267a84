"""Plugins that misbehave: each has no effect on the others, or ends in an error that names it."""

import json
from pathlib import Path

import pytest

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import PluginFault
from adaptive_bench.recipe import EvalRecipe, TrainRecipe
from adaptive_bench.runs import plan, run

PLUGIN = """
import atexit, builtins, ctypes, gc, json, locale, os, random, signal, subprocess, sys, threading, time, warnings
from pathlib import Path
import numpy, torch, transformers
from torch.nn import functional as F
from adaptive_bench import atomic, registry
from adaptive_bench.engine import ledger
from adaptive_bench.methods.dense import Dense
from transformers.models.llama import modeling_llama

OUT = Path({out!r})

class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **kwargs or {{}})

def act(self):
    {act}

@registry.register("methods", {name!r})
class Misbehaving(Dense):
    @classmethod
    def training_spec(cls, config, spec):
        return spec if {trains!r} else super().training_spec(config, spec)

    def {hook}:
        if os.environ.get("ADAPTIVE_BENCH_TRIAL") != {name!r}:
            act(self)
        return super().{call}
"""
# What is done in `decide` while the method is evaluated, and what the error says; `None` if it works and harms nobody.
WHILE_EVALUATED = {
    "silu": ("F.silu = lambda x, inplace=False: x", "torch.nn.functional.silu"),
    "tensor_method": ("torch.Tensor.softmax = lambda self, dim: self", "torch.Tensor.softmax"),
    "transformers": ("modeling_llama.LlamaMLP.forward = lambda self, x: x", "LlamaMLP.forward"),
    "ledger": ("ledger.Ledger.saved = lambda self, *a, **k: 1.0", "adaptive_bench.engine.ledger.Ledger.saved"),
    "bytecode": ("F.silu.__code__ = (lambda input, inplace=False: input).__code__", "the code of torch.nn.functional"),
    "json": ("json.dumps = lambda *a, **k: '{}'", "json.dumps"),
    "builtin": ("builtins.sum = max", "builtins.sum"),
    "clock": ("time.perf_counter = lambda: 0.0", "time.perf_counter"),
    "grad": ("torch.set_grad_enabled(False)", None),  # the harness asks in inference mode, which ends with the call
    "dtype": ("torch.set_default_dtype(torch.float64)", "torch.set_default_dtype"),
    "threads": ("torch.set_num_threads(3)", "torch.set_num_threads"),
    "deterministic": ("torch.use_deterministic_algorithms(True, warn_only=True)", "torch.use_deterministic"),
    "precision": ("torch.set_float32_matmul_precision('medium')", "torch.set_float32_matmul_precision"),
    "denormals": ("torch.set_flush_denormal(True)", "torch.set_flush_denormal"),
    "anomaly": ("torch.autograd.set_detect_anomaly(True)", "torch.autograd.set_detect_anomaly"),
    "hooks": ("torch.nn.modules.module.register_module_forward_hook(lambda *a: None)", "hooks on all modules"),
    "mode": ("Mode().__enter__()", "a torch function mode"),
    "environment": ("os.environ['ADAPTIVE_BENCH_DATA'] = '/nowhere'", "the environment variable ADAPTIVE_BENCH_DATA"),
    "directory": ("os.chdir('/')", "the working directory"),
    "umask": ("os.umask(0o077)", "umask"),
    "signals": ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "what happens at SIGTERM"),
    "random": ("random.seed(0); numpy.random.seed(0); torch.manual_seed(0)", None),
    "thread": ("threading.Thread(target=lambda: time.sleep(3600)).start()", None),
    "atexit": ("atexit.register(lambda: time.sleep(3600))", None),
    "stdout": ("sys.stdout.close(); os.close(1); os.close(2)", None),
    "stdin": ("sys.stdin.read()", None),
    "daemon": ("subprocess.Popen(['sleep', '3600'])", None),
    "records": ("[file.write_text('{}') for file in OUT.glob('records/dense-*/**/*.json')]", "records of others"),
    "removal": ("__import__('shutil').rmtree(next(OUT.glob('records/dense-*/eval')), False)", "records of others"),
    "exit": ("sys.exit(0)", "SystemExit"),
    "end": ("os._exit(0)", "ended twice with the exit code 0"),
    "abort": ("os.abort()", "ended twice by the signal SIGABRT"),
    "crash": ("ctypes.string_at(0)", "ended twice by the signal SIGSEGV"),
}
WHILE_TRAINED = {
    "trained_silu": ("F.silu = lambda x, inplace=False: x", "torch.nn.functional.silu"),
    "trained_grad": ("torch.set_grad_enabled(False)", "torch.set_grad_enabled"),
    "trained_abort": ("os.abort()", "SIGABRT"),
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


def results(config: RunConfig) -> dict[str, bytes]:
    """What dense's record says, but for times and who was at it."""
    (cell,) = (cell for cell in plan(config).cells if cell.spec.name == "dense")
    timed = {"env.json", "status.json", "log.txt", "timing.json"}
    found = {
        str(path.relative_to(cell.folder)): path.read_bytes()
        for path in sorted(cell.folder.rglob("*"))
        if path.is_file() and path.name not in timed and ".attempts" not in path.parts and "misb" not in path.name
    }
    for name, content in found.items():
        if name.endswith(".json") and b'"time_s"' in content:
            values = json.loads(content)
            found[name] = json.dumps({key: values[key] for key in ("scores", "savings", "report", "data")}).encode()
    return {name: content for name, content in found.items() if "calibration" not in name}


def write(folder: Path, name: str, act: str, out: Path) -> Path:
    trains = name in WHILE_TRAINED
    hook, call = (
        ("begin_step(self, *about)", "begin_step(*about)") if trains else ("decide(self, view)", "decide(view)")
    )
    path = folder / f"{name}.py"
    path.write_text(PLUGIN.format(name=name, act=act, hook=hook, call=call, trains=trains, out=str(out)))
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


@pytest.mark.slow
def test_dense_is_what_it_is_alone(together):
    _, beside, alone = together
    assert beside == alone and len(alone) > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_misbehaving_plugin_is_named_or_harmless(together, name):
    failures, said = together[0], CASES[name][1]
    mine = [str(failure) for failure in failures if f"{name}, seed" in failure.work or f"{name} on" in failure.work]
    if said is None:
        assert mine == []
    else:
        assert mine and all("Plugin fault" in text and said in text and f"{name}" in text for text in mine), mine
