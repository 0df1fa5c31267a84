"""Makes a checkout usable on a machine where nothing can be installed: `python benchmarks/gpu.py` then needs only the
PyTorch and transformers of that machine.
"""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import sys
import tempfile
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parent.parent
_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def prepare() -> list[str]:
    """Make this checkout importable and its methods discoverable; returns what was done for that, one line each."""
    done = []
    try:
        version("adaptive-bench")
    except PackageNotFoundError:
        folder = tempfile.mkdtemp(prefix="adaptive-bench-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        describe(ROOT, Path(folder))
        done.append(f"adaptive-bench is not installed: it is read from {ROOT}.")
    if importlib.util.find_spec("pydantic") is None:
        import pydantic_stand_in

        for name in ("pydantic", "pydantic.dataclasses", "pydantic.fields"):
            sys.modules[name] = pydantic_stand_in
        done.append("pydantic is not installed: parameters of methods are read by benchmarks/pydantic_stand_in.py.")
    return done


def describe(root: Path, folder: Path) -> None:
    """Write the metadata of an installation (name, version, entry points) into a folder, and put checkout and folder on
    the path.

    Args:
        root: Folder of the checkout.
        folder: An empty folder, which must exist as long as the process.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(_METADATA.format(**project), encoding="utf-8")
    groups = project["entry-points"]
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in names.items()) for group, names in groups.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    sys.path += [str(root), str(folder)]
    import adaptive_bench

    # The plugin folders lie beside the core, but are installed as parts of it.
    adaptive_bench.__path__.append(str(root))
