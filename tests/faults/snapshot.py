"""What a run leaves on disk, in a form in which two runs can be compared byte for byte, and what should not be there.

Left aside: how long things took and when (`TIMES`), logs, and the path of the folder. All else must be
equal.
"""

import json

TIMES = {"seconds", "since", "began", "finished", "took_s", "wall_s", "time_s"}
TIMES |= {"timing"}  # of a training
_ASIDE = {"log.txt"}


def snapshot(out):
    """Every file of an output folder by its path, without times."""
    return {
        file.relative_to(out).as_posix(): _without_times(file).replace(bytes(out), b"OUT")
        for file in sorted(out.rglob("*"))
        if file.is_file() and file.name not in _ASIDE and not leftover(file.relative_to(out))
    }


def leftovers(out):
    """Temporary files and folders, checkpoints to resume from, and records that say they are running."""
    found = [path.relative_to(out) for path in sorted(out.rglob("*"))]
    traces = [path.as_posix() for path in found if leftover(path)]
    running = [
        f"{file.relative_to(out).as_posix()} says running"
        for file in sorted(out.rglob("record.json"))
        if json.loads(file.read_text()).get("status", {}).get("state") == "running"
    ]
    return traces + running


def leftover(path):
    """Whether a path (relative to the output folder) is one that a finished run has no use for."""
    parts = path.parts
    hidden = any(part.startswith(".") for part in parts)
    return hidden or "resume" in parts or path.name.endswith((".tmp", ".damaged")) or ".tmp" in path.name


def differences(expected, found):
    """Files that one of two snapshots lacks or that differ, with the first place where they do."""
    told = [f"{name} is missing" for name in expected if name not in found]
    told += [f"{name} is too many" for name in found if name not in expected]
    for name in expected:
        if name in found and expected[name] != found[name]:
            told.append(f"{name} differs: {_first_difference(expected[name], found[name])}")
    return told


def _first_difference(one, other):
    place = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    around = slice(max(0, place - 60), place + 60)
    return f"at byte {place}, {one[around]!r} became {other[around]!r}"


def _without_times(file):
    content = file.read_bytes()
    if file.suffix != ".json":
        return content
    try:
        return json.dumps(_stripped(json.loads(content)), indent=1, ensure_ascii=False).encode()
    except ValueError:
        return content


def _stripped(value):
    if isinstance(value, dict):
        return {key: _stripped(part) for key, part in value.items() if key not in TIMES}
    return [_stripped(part) for part in value] if isinstance(value, list) else value
