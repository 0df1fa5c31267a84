"""Settings of a process and of torch that can be read and put back: those that a plugin has to leave alone."""

from __future__ import annotations

import gc
import locale
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

_SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGALRM", "SIGCHLD", "SIGPIPE")


@dataclass(frozen=True)
class Setting:
    """One of them, as an error names it."""

    what: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


def settings() -> list[Setting]:
    """Every setting that can be read and put back; those of torch where it is loaded."""
    found = [
        Setting("the working directory", _working_directory, os.chdir),
        Setting(
            "the locale", lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)
        ),
        Setting("the garbage collector", gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
        Setting("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
        Setting("warnings that are errors", _error_filters, _set_error_filters),
        Setting("the file mode mask (umask)", _umask, os.umask),
    ]
    for name in _SIGNALS:
        if (number := getattr(signal, name, None)) is not None:
            found.append(Setting(f"what happens at {name}", partial(signal.getsignal, number), _signal_setter(number)))
    torch = sys.modules.get("torch")
    return found if torch is None or not hasattr(torch, "compile") else found + _torch_settings(torch)


def _torch_settings(torch: Any) -> list[Setting]:
    cuda, cudnn, flags = torch.backends.cuda, torch.backends.cudnn, torch.backends.cuda.matmul
    found = [
        Setting("torch.set_grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled),
        Setting("torch.inference_mode", torch.is_inference_mode_enabled, lambda on: torch._C._set_inference_mode(on)),
        Setting("torch.set_default_dtype", torch.get_default_dtype, torch.set_default_dtype),
        Setting("torch.set_default_device", torch.get_default_device, torch.set_default_device),
        Setting("torch.set_num_threads", torch.get_num_threads, torch.set_num_threads),
        Setting(
            "torch.use_deterministic_algorithms",
            lambda: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            lambda mode: torch.use_deterministic_algorithms(mode[0], warn_only=mode[1]),
        ),
        Setting(
            "torch.set_float32_matmul_precision",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        Setting("torch.set_flush_denormal", _flushes_denormals, torch.set_flush_denormal),
        Setting(
            "torch.autograd.set_detect_anomaly",
            lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            lambda mode: torch.autograd.set_detect_anomaly(*mode),
        ),
        Setting(
            "a torch function mode that was entered",
            torch._C._len_torch_function_stack,
            lambda depth: _pop(torch._C._len_torch_function_stack, torch._C._pop_torch_function_stack, depth),
        ),
        Setting(
            "a torch dispatch mode that was entered",
            torch._C._len_torch_dispatch_stack,
            lambda depth: _pop(torch._C._len_torch_dispatch_stack, torch._C._pop_torch_dispatch_stack, depth),
        ),
        Setting("torch.backends.mkldnn", lambda: torch._C._get_mkldnn_enabled(), torch._C._set_mkldnn_enabled),
    ]
    for device in ("cpu", "cuda"):
        found.append(Setting(f"torch.autocast on {device}", partial(_autocast, device), partial(_set_autocast, device)))
    for owner, label, names in (
        (cudnn, "cudnn", ("enabled", "benchmark", "deterministic")),
        (flags, "cuda.matmul", ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")),
    ):
        for name in names:
            read, write = partial(getattr, owner, name), partial(setattr, owner, name)
            found.append(Setting(f"torch.backends.{label}.{name}", read, write))
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        read, write = getattr(cuda, f"{name}_sdp_enabled"), getattr(cuda, f"enable_{name}_sdp")
        found.append(Setting(f"torch.backends.cuda.enable_{name}_sdp", read, write))
    for name, hooks in vars(sys.modules["torch.nn.modules.module"]).items():
        if name.startswith("_global_") and isinstance(hooks, dict):
            found.append(Setting(f"hooks on all modules ({name})", partial(dict, hooks), partial(_refill, hooks)))
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
