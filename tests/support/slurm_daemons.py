"""A real Slurm for tests: one controller and two nodes of one core on this machine, in a folder of their own.

Found on the path, or else Debian's packages are downloaded and unpacked into a folder: nothing is installed.
"""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PACKAGES = ["slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libmunge2", "libhwloc15"]
PACKAGES += ["liblua5.1-0"]

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
# The default keeps a requeued job waiting for over 30 s; less than 5 is refused.
AuthInfo=socket={home}/munge.sock,cred_expire=5
{plugins}
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool.%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.%n.log
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
JobRequeue=1
KillWait=5
MinJobAge=600
InactiveLimit=0
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=30
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=4000 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=4000 State=UNKNOWN
PartitionName=low Nodes=n[1-2] Default=YES PriorityTier=1 PreemptMode=REQUEUE DefaultTime=10 MaxTime=60 GraceTime=20
PartitionName=high Nodes=n[1-2] PriorityTier=10 PreemptMode=OFF DefaultTime=10 MaxTime=60
"""


class Unavailable(Exception):
    """Slurm cannot be had here; the message says why."""


class Slurm:
    """Starts when made; `down` ends what it started, by process id."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.programs, plugins, libraries = _find(home)
        self.environment = os.environ | {"SLURM_CONF": str(home / "slurm.conf"), "PATH": _path(self.programs)}
        if libraries:
            self.environment["LD_LIBRARY_PATH"] = libraries
        (home / "state").mkdir()
        names = {
            "host": platform.node().partition(".")[0],
            "user": pwd.getpwuid(os.geteuid()).pw_name,
            "home": home,
            "ports": _free_ports(3),
            "plugins": f"PluginDir={plugins}" if plugins else "",
        }
        (home / "slurm.conf").write_text(CONFIG.format(**names))
        key = home / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        home.chmod(0o755)
        self._start_munge()
        self.start_controller()
        step = ["-d", self.programs["slurmstepd"]] if plugins else []
        for node in ("n1", "n2"):
            self.call("slurmd", "-N", node, *step)
        self.wait_until(lambda: self.nodes_idle() == 2, 30, "the nodes are up")

    def _start_munge(self) -> None:
        names = {"socket": "munge.sock", "key-file": "munge.key", "pid-file": "munged.pid", "log-file": "munged.log"}
        options = [f"--{name}={self.home / file}" for name, file in (names | {"seed-file": "munged.seed"}).items()]
        self.call("munged", "--force", *options)

    def start_controller(self) -> None:
        """Start slurmctld, from the state it saved."""
        self.call("slurmctld")

    def kill_controller(self) -> None:
        """Kill slurmctld without a word."""
        os.kill(int((self.home / "slurmctld.pid").read_text()), signal.SIGKILL)

    def nodes_idle(self) -> int:
        """Nodes that could take a job."""
        found = subprocess.run(
            [self.programs["sinfo"], "-h", "-N", "-t", "idle", "-o", "%N", "-p", "low"],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return len(found.stdout.split())

    def call(self, program: str, *words: str) -> str:
        """Run one of Slurm's programs to its end."""
        done = subprocess.run(
            [self.programs[program], *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"{program} {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def states(self) -> dict[str, str]:
        """State of every array element and job, by its name `17_3` or `18`."""
        lines = self.call("squeue", "-h", "-r", "-t", "all", "-o", "%i %T").splitlines()
        return dict(line.split() for line in lines)

    @staticmethod
    def wait_until(true: Callable[[], bool], limit_s: float, what: str) -> None:
        """Look twice a second."""
        end_s = time.monotonic() + limit_s
        while not true():
            assert time.monotonic() < end_s, f"waited {limit_s:.0f} s for: {what}"
            time.sleep(0.5)

    def down(self) -> None:
        """Cancel what is left and end the daemons."""
        subprocess.run([self.programs["scancel"], "--me"], env=self.environment, check=False, timeout=30)
        for name in ("slurmd.n1", "slurmd.n2", "slurmctld", "munged"):
            try:
                process = int((self.home / f"{name}.pid").read_text())
                os.kill(process, signal.SIGTERM)
                for _ in range(50):
                    time.sleep(0.1)
                    os.kill(process, 0)
                os.kill(process, signal.SIGKILL)  # slurmd may wait for a controller that is gone
            except (OSError, ValueError):
                continue


def _find(home: Path) -> tuple[dict[str, str], str, str]:
    """Programs by name; where its plugins and its libraries are, if not where it looks itself."""
    wanted = ["munged", "slurmctld", "slurmd", "sinfo", "squeue", "sbatch", "scancel", "scontrol"]
    places = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    found = {name: shutil.which(name, path=places) for name in wanted}
    if all(found.values()):
        return {name: str(place) for name, place in found.items()}, "", ""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Unavailable("Slurm is not installed, and without apt-get its packages cannot be downloaded")
    packages, root = home / "packages", home / "root"
    packages.mkdir()
    packages.chmod(0o777)  # apt downloads as a user of its own
    command = ["apt-get", "download", "-qq", *PACKAGES]
    done = subprocess.run(command, cwd=packages, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise Unavailable(f"Slurm is not installed, and `{' '.join(command)}` ended with: {done.stderr.strip()[-300:]}")
    for file in packages.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(file), str(root)], check=True)
    (plugins,) = (path.parent for path in root.rglob("auth_munge.so"))
    for name in [*wanted, "slurmstepd"]:
        programs = [root / "usr" / part / (name + end) for part in ("bin", "sbin") for end in ("-wlm", "")]
        found[name] = next((str(place) for place in programs if place.is_file()), None)
        if found[name] is None:
            raise Unavailable(f"Debian's packages of Slurm hold no {name}")
    libraries = f"{plugins.parent}:{plugins}"
    return {name: str(place) for name, place in found.items()}, str(plugins), libraries


def _path(programs: dict[str, str]) -> str:
    folders = dict.fromkeys(str(Path(program).parent) for program in programs.values())
    return ":".join([*folders, os.environ["PATH"]])


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
