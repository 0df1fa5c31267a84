"""What a worker that is to be killed does first; in a file of its own, since workers run no program's main file."""

import os
import signal
import sys

_WRITES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.link"}


class Operations:
    """Counts operations on files below a folder, and kills this process before one of them."""

    def __init__(self, folder, at, fuse):
        self.folder, self.at, self.fuse, self.count = str(folder), at, fuse, 0

    def __call__(self, event, arguments):
        if event == "open":
            path, mode, flags = arguments
            if not (mode and set(mode) & set("wax+")) and not (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event in _WRITES:
            path = arguments[0]
        else:
            return
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str | os.PathLike) or not os.fspath(path).startswith(self.folder):
            return
        self.count += 1
        if self.count == self.at:
            try:
                os.close(os.open(self.fuse, os.O_CREAT | os.O_EXCL))  # of several workers one
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)


def start_armed(folder, at, fuse, *arguments):
    """What a worker does first."""
    from adaptive_bench.jobs import worker

    if at is not None:
        sys.addaudithook(Operations(folder, at, fuse))
    worker.work(*arguments)
