"""What a plugin has to leave as it found it: functions of libraries and of this package, and the process's settings.

Plugins share a process with this package for some of the time: while they are imported, while a run is planned, and
while a task of theirs is asked. What they change there would change the numbers of others without a word. `watching`
compares the state before and after, puts back what was changed, and ends in an error that names the plugin; whoever is
about to keep a result calls `check` first.

A function counts as changed when a name that was there stands for something else, when its code was exchanged, or when
a new name hides an inherited method or a builtin. New names are nobody's loss, and neither are values that are no
functions: libraries keep caches in them.
"""

from __future__ import annotations

import builtins
import gc
import locale
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from adaptive_bench.errors import PluginFault, message_of, one_line

# What computes, scores and writes. A whole package with a final dot; libraries that are not loaded are not looked at.
_GUARDED = """
    accelerate.accelerator accelerate.optimizer accelerate.utils.random adaptive_bench. builtins datetime hashlib
    json. lm_eval.api. lm_eval.evaluator lm_eval.filters. lm_eval.models. lm_eval.tasks math numpy numpy.random os
    pathlib pickle random safetensors. shutil statistics subprocess threading time torch torch._C torch._C._nn
    torch._tensor torch.autograd. torch.backends. torch.cuda torch.cuda.amp. torch.linalg torch.nn. torch.optim.
    torch.random torch.serialization torch.special torch.utils.checkpoint transformers.activations
    transformers.cache_utils transformers.generation. transformers.integrations.sdpa_attention
    transformers.masking_utils transformers.modeling_attn_mask_utils transformers.modeling_layers
    transformers.modeling_outputs transformers.modeling_rope_utils transformers.modeling_utils
    transformers.models.gemma2. transformers.models.llama. transformers.models.mistral. transformers.models.qwen2.
    transformers.models.qwen3. transformers.pytorch_utils transformers.tokenization_utils_base
""".split()  # noqa: SIM905 - a list of 60 lines
_PACKAGES = tuple(name for name in _GUARDED if name.endswith("."))
_MODULES = {name.removesuffix(".") for name in _GUARDED}
# Plugin files have modules of their own (`registry.load_plugin`), which are nobody else's business.
_PLUGIN_MODULE = "adaptive_bench_plugin_"
_DESCRIPTORS = (staticmethod, classmethod, property)
# Written by Python when a class is first used, and by torch with the default dtype, which is a setting.
_BOOKKEEPING = {"__doc__", "__signature__", "__class_getitem__", "Storage"}
_WRAPPERS = ("torch/optim/optimizer.py", "torch/_compile.py", "torch/_dynamo/eval_frame.py")
_OF_LIBRARIES = {"TORCHINDUCTOR_CACHE_DIR", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}  # set when they are loaded
_SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGALRM", "SIGCHLD", "SIGPIPE")
_MOST_NAMED = 5
_MISSING = object()


@dataclass(frozen=True)
class Change:
    """Something that is no longer what it was.

    Attributes:
        what: Its name, as a user would look for it.
        put_back: Makes it what it was.
    """

    what: str
    put_back: Callable[[], object]


@dataclass(frozen=True)
class _Setting:
    what: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


class State:
    """The functions and settings of this process as they stand when it is made."""

    def __init__(self) -> None:
        self._settings = [(setting, setting.read()) for setting in _settings()]
        self._environment = dict(os.environ)
        self._modules = {name: module for name, module in list(sys.modules.items()) if _is_guarded(name, module)}
        self._owners: dict[int, tuple[str, Any, dict[str, Any]]] = {}
        self._code: dict[int, tuple[str, FunctionType, object]] = {}
        for name, module in self._modules.items():
            self._add(name, module)

    def _add(self, label: str, owner: Any) -> None:
        if id(owner) in self._owners:
            return
        before = dict(vars(owner))
        self._owners[id(owner)] = (label, owner, before)
        for name, value in before.items():
            if isinstance(value, FunctionType):
                self._code[id(value)] = (f"{label}.{name}", value, value.__code__)
            elif isinstance(value, type) and _is_guarded(value.__module__, sys.modules.get(value.__module__)):
                self._add(f"{value.__module__}.{value.__qualname__}", value)

    def changes(self) -> list[Change]:
        """What is different by now: functions, or if all of these are there, settings, which are read with them."""
        found: list[Change] = []
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module:
                found.append(Change(f"the module {name}", partial(sys.modules.__setitem__, name, module)))
        for what, function, code in self._code.values():
            if function.__code__ is not code:
                found.append(Change(f"the code of {what}", partial(setattr, function, "__code__", code)))
        for label, owner, before in self._owners.values():
            found += _owner_changes(label, owner, before)
        if found:
            return found
        settings = [(one, before) for one, before in self._settings if one.read() != before]
        found = [Change(setting.what, partial(setting.write, before)) for setting, before in settings]
        return found + _environment_changes(self._environment)


def _owner_changes(label: str, owner: Any, before: Mapping[str, Any]) -> list[Change]:
    """Functions of a module or class that are not what they were."""
    now = vars(owner)
    found = [
        Change(f"{label}.{name}", partial(setattr, owner, name, value))
        for name, value in before.items()
        if now.get(name) is not value
        and (callable(value) or isinstance(value, _DESCRIPTORS))
        and name not in _BOOKKEEPING
        and not _is_wrapped_by_torch(now.get(name))
    ]
    if now.keys() != before.keys():
        hidden = _hidden_names(owner)
        found += [
            Change(f"{label}.{name}", partial(delattr, owner, name))
            for name in list(now.keys() - before.keys())
            if callable(now[name])
            and name in hidden
            and name not in _BOOKKEEPING
            and not _is_wrapped_by_torch(now[name])
        ]
    return found


def _is_wrapped_by_torch(value: Any) -> bool:
    """Whether torch itself put this in place of what it wraps: the `step` of an optimizer's class when the first one is
    made, and a few functions when its compiler is loaded.
    """
    file = getattr(getattr(value, "__code__", None), "co_filename", "")
    return hasattr(value, "__wrapped__") and file.replace(os.sep, "/").endswith(_WRAPPERS)


def _hidden_names(owner: Any) -> set[str]:
    """Names that a new one in a module or class would hide."""
    if isinstance(owner, ModuleType):
        return set() if owner is builtins else set(vars(builtins))
    return {name for parent in owner.__mro__[1:] for name in vars(parent)}


def _is_guarded(name: str, module: Any) -> bool:
    if not isinstance(module, ModuleType) or name.startswith(_PLUGIN_MODULE):
        return False
    return name in _MODULES or name.startswith(_PACKAGES)


def _environment_changes(before: Mapping[str, str]) -> list[Change]:
    return [
        Change(f"the environment variable {name}", partial(_set_variable, name, before.get(name)))
        for name in sorted(before.keys() | os.environ.keys())
        if before.get(name) != os.environ.get(name) and name not in _OF_LIBRARIES
    ]


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        del os.environ[name]
    else:
        os.environ[name] = value


def _settings() -> list[_Setting]:
    """Every setting that can be read and put back; those of torch where it is loaded."""
    found = [
        _Setting("the working directory", _working_directory, os.chdir),
        _Setting(
            "the locale", lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)
        ),
        _Setting("the garbage collector", gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
        _Setting("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
        _Setting("warnings that are errors", _error_filters, _set_error_filters),
        _Setting("the file mode mask (umask)", _umask, os.umask),
    ]
    for name in _SIGNALS:
        if (number := getattr(signal, name, None)) is not None:
            found.append(_Setting(f"what happens at {name}", partial(signal.getsignal, number), _signal_setter(number)))
    torch = sys.modules.get("torch")
    return found if torch is None or not hasattr(torch, "compile") else found + _torch_settings(torch)


def _torch_settings(torch: Any) -> list[_Setting]:
    cuda, cudnn, flags = torch.backends.cuda, torch.backends.cudnn, torch.backends.cuda.matmul
    found = [
        _Setting("torch.set_grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled),
        _Setting("torch.inference_mode", torch.is_inference_mode_enabled, lambda on: torch._C._set_inference_mode(on)),
        _Setting("torch.set_default_dtype", torch.get_default_dtype, torch.set_default_dtype),
        _Setting("torch.set_default_device", torch.get_default_device, torch.set_default_device),
        _Setting("torch.set_num_threads", torch.get_num_threads, torch.set_num_threads),
        _Setting(
            "torch.use_deterministic_algorithms",
            lambda: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            lambda mode: torch.use_deterministic_algorithms(mode[0], warn_only=mode[1]),
        ),
        _Setting(
            "torch.set_float32_matmul_precision",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        _Setting("torch.set_flush_denormal", _flushes_denormals, torch.set_flush_denormal),
        _Setting(
            "torch.autograd.set_detect_anomaly",
            lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            lambda mode: torch.autograd.set_detect_anomaly(*mode),
        ),
        _Setting(
            "a torch function mode that was entered",
            torch._C._len_torch_function_stack,
            lambda depth: _pop(torch._C._len_torch_function_stack, torch._C._pop_torch_function_stack, depth),
        ),
        _Setting(
            "a torch dispatch mode that was entered",
            torch._C._len_torch_dispatch_stack,
            lambda depth: _pop(torch._C._len_torch_dispatch_stack, torch._C._pop_torch_dispatch_stack, depth),
        ),
        _Setting("torch.backends.mkldnn", lambda: torch._C._get_mkldnn_enabled(), torch._C._set_mkldnn_enabled),
    ]
    for device in ("cpu", "cuda"):
        found.append(
            _Setting(f"torch.autocast on {device}", partial(_autocast, device), partial(_set_autocast, device))
        )
    for owner, label, names in (
        (cudnn, "cudnn", ("enabled", "benchmark", "deterministic")),
        (flags, "cuda.matmul", ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")),
    ):
        for name in names:
            read, write = partial(getattr, owner, name), partial(setattr, owner, name)
            found.append(_Setting(f"torch.backends.{label}.{name}", read, write))
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        read, write = getattr(cuda, f"{name}_sdp_enabled"), getattr(cuda, f"enable_{name}_sdp")
        found.append(_Setting(f"torch.backends.cuda.enable_{name}_sdp", read, write))
    for name, hooks in vars(sys.modules["torch.nn.modules.module"]).items():
        if name.startswith("_global_") and isinstance(hooks, dict):
            found.append(_Setting(f"hooks on all modules ({name})", partial(dict, hooks), partial(_refill, hooks)))
    return found


def _autocast(device: str) -> tuple[bool, Any]:
    torch = sys.modules["torch"]
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


def _set_autocast(device: str, mode: tuple[bool, Any]) -> None:
    torch = sys.modules["torch"]
    torch.set_autocast_enabled(device, mode[0])
    torch.set_autocast_dtype(device, mode[1])


def _refill(hooks: dict[Any, Any], before: Mapping[Any, Any]) -> None:
    hooks.clear()
    hooks.update(before)


def _pop(depth: Callable[[], int], pop: Callable[[], object], wanted: int) -> None:
    while depth() > wanted:
        pop()


def _flushes_denormals() -> bool:
    torch = sys.modules["torch"]
    return bool((torch.tensor([1e-40], dtype=torch.float32, device="cpu") * 0.5 == 0).item())


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def _umask() -> int:
    """Read where it can be read without being set."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0


def _error_filters() -> list[Any]:
    return [one for one in warnings.filters if one[0] == "error"]


def _set_error_filters(before: list[Any]) -> None:
    warnings.filters[:] = [one for one in warnings.filters if one[0] != "error" or one in before]  # type: ignore[index]


def _signal_setter(number: int) -> Callable[[Any], object]:
    def write(handler: Any) -> None:
        with suppress(ValueError):  # not the main thread, which alone could have changed it
            signal.signal(number, handler)

    return write


_watches: list[tuple[str, State]] = []


@contextmanager
def watching(who: str | None) -> Iterator[None]:
    """Code of a plugin runs in the block; what it changes is put back at its end.

    Args:
        who: The plugin, as an error names it; `None` if there is none, and nothing is looked at.

    Raises:
        PluginFault: Something was changed; also in place of an error in the block, which may come from that.
    """
    if who is None:
        yield
        return
    state = State()
    _watches.append((who, state))
    try:
        yield
    except Exception as error:
        if (changes := _put_back(state)) and not isinstance(error, PluginFault):
            raise PluginFault(f"{_text(who, changes)} Then: {type(error).__name__}: {message_of(error)}") from error
        raise
    except BaseException:
        _put_back(state)
        raise
    else:
        if changes := _put_back(state):
            raise PluginFault(_text(who, changes))
    finally:
        _watches.pop()


def check() -> None:
    """Refuse to keep a result that was made while a plugin had changed what it has to leave alone.

    Raises:
        PluginFault: It has.
    """
    for who, state in _watches:
        if changes := state.changes():
            raise PluginFault(_text(who, changes))


def _put_back(state: State) -> list[Change]:
    found: list[Change] = []
    for _ in range(2):  # functions first, see `State.changes`
        changes = state.changes()
        for change in changes:
            change.put_back()
        found += changes
    return found


def _text(who: str, changes: list[Change]) -> str:
    named = [one_line(change.what, 120) for change in changes]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return (
        f"A plugin leaves as they are the functions of libraries, the settings of torch and of the process, but {who} "
        f"changed {', '.join(named[:_MOST_NAMED])}{more}. Nothing is kept of it. Call what you need instead of "
        "replacing it, and put settings back where you set them."
    )
