"""Where this user's scheduler is: folders, the runtime file that a running scheduler leaves, and reading it back.

The runtime folder is on this machine (socket, locks, runtime file); the data folder may be anywhere. Both names a
scheduler by (host, boot, data folder), so that a file left by another machine or another boot is never believed.
Nothing here starts anything: see embedded.py.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import socket
import stat
import tempfile
from pathlib import Path

import msgspec

from ..model.errors import InvalidRequest
from ..model.private import is_open, private_mode, why_not_private
from ..worker.peers import peer_uid
from .transport import Unreached

#: sun_path holds 108 bytes on Linux and 104 elsewhere; stay clear of both.
SOCKET_PATH_LIMIT = 100
#: What the longest name of a socket takes below its folder: "/t/" + an attempt's id (26) + "." + a rank (7).
SOCKET_NAME_BYTES = 37
CONNECT_TIMEOUT_S = 2.0

ENV_DATA = "GPUCLUSTER_DATA"
ENV_RUNTIME = "GPUCLUSTER_RUNTIME"
ENV_ADDRESS = "GPUCLUSTER_ADDRESS"
ENV_CONFIG = "GPUCLUSTER_CONFIG"


class RuntimeInfo(msgspec.Struct, kw_only=True):
    """What a running scheduler tells about itself. `start_ticks`: field 22 of /proc/<pid>/stat."""

    pid: int
    start_ticks: int
    pid_namespace: str
    host: str
    boot_id: str
    protocol: tuple[int, int]
    socket: str
    data_dir: str
    version: str
    started_us: int = 0
    seen_us: int = 0  # refreshed now and then by a scheduler whose data folder is on a network file system

    @property
    def address(self) -> str:
        return f"unix:{self.socket}"


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The data folder: the argument, $GPUCLUSTER_DATA, what the cluster.yaml of $GPUCLUSTER_CONFIG says, or
    ``gpucluster`` in the user's data home. Not created here. Raises InvalidConfig, InvalidRequest without a home.
    """
    chosen = data_dir or os.environ.get(ENV_DATA) or _configured_data_folder()
    if not chosen:
        home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
        chosen = os.path.join(home, "gpucluster")
    folder = os.path.expanduser(os.fspath(chosen))
    if folder.startswith("~"):
        raise InvalidRequest(
            ENV_DATA,
            f"{folder} names no folder: this account has no home",
            f"Set {ENV_DATA} to a folder of yours.",
        )
    return Path(os.path.realpath(folder))


def _configured_data_folder() -> str | None:
    """Server and clients that are given the same cluster.yaml meet at the same place."""
    if not os.environ.get(ENV_CONFIG):
        return None
    from .config import load_config  # takes long to import, and is seldom needed by a client

    return load_config().data_dir


def runtime_folder() -> Path:
    """The runtime folder, created 0700: $GPUCLUSTER_RUNTIME, $XDG_RUNTIME_DIR/gpucluster, or a short one in the
    system's temporary folder. Raises InvalidRequest when what stands there belongs to somebody else.
    """
    chosen = os.environ.get(ENV_RUNTIME)
    if chosen:
        return private_folder(Path(chosen).expanduser(), field=ENV_RUNTIME)
    session = os.environ.get("XDG_RUNTIME_DIR")
    if session and _owned_and_writable(session):
        return private_folder(Path(session) / "gpucluster", field="XDG_RUNTIME_DIR")
    return short_folder()


def short_folder() -> Path:
    """``gpucluster-<uid>`` in the system's temporary folder, 0700 and ours."""
    base = tempfile.gettempdir()
    if len(os.fsencode(base)) > 40:
        base = "/tmp"
    return private_folder(Path(base) / f"gpucluster-{os.getuid()}", field="TMPDIR")


def private_folder(path: Path, *, field: str) -> Path:
    """Create `path` (0700) where it is missing; refuse a link, another owner, and one that others may write to, since
    what stands there may be theirs. One that others may only read is closed.
    """
    path = Path(os.path.abspath(path))
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.lstat(path)
    except OSError as error:
        raise InvalidRequest(field, f"{path} cannot be used as a folder: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidRequest(field, f"{path} is not a folder of its own (a link, for instance)")
    trouble = why_not_private(path, status, os.geteuid())
    if trouble is not None:
        raise InvalidRequest(
            field, trouble.reason, trouble.hint or f"Set {ENV_RUNTIME} to a folder of yours."
        )
    if is_open(status):
        os.chmod(path, private_mode(status))
    return path


def _owned_and_writable(path: str) -> bool:
    try:
        return os.stat(path).st_uid == os.getuid() and os.access(path, os.W_OK | os.X_OK)
    except OSError:
        return False


def scheduler_key(data_dir: Path) -> str:
    """A short name for the scheduler of `data_dir` on this machine in this boot."""
    text = "\0".join((host_name(), boot_id(), str(data_dir)))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def socket_folder(runtime: Path) -> Path:
    """Where sockets go, the scheduler's and those of tasks: the runtime folder, or a short one when its path is too long."""
    if len(os.fsencode(runtime)) + SOCKET_NAME_BYTES >= SOCKET_PATH_LIMIT:
        return short_folder()
    return runtime


def socket_path(runtime: Path, key: str) -> Path:
    """The scheduler's socket."""
    return socket_folder(runtime) / f"{key}.sock"


def runtime_file(runtime: Path, key: str) -> Path:
    return runtime / f"{key}.json"


def claim_file(data_dir: Path) -> Path:
    """The copy of the runtime file in the data folder: for clients with another runtime folder, and other machines."""
    return data_dir / "scheduler.json"


@functools.cache
def boot_id() -> str:
    """Changes with each boot of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        import psutil

        return str(int(psutil.boot_time()))


def host_name() -> str:
    return socket.gethostname()


def pid_namespace() -> str:
    """Names the numbering in which this process's pids hold; "" where the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When the process began (clock ticks since boot): tells it from a later one of the same pid. None = no process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None if os.path.isdir("/proc/self") else _start_ticks_elsewhere(pid)
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _start_ticks_elsewhere(pid: int) -> int | None:
    import psutil

    try:
        return int(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def is_running(info: RuntimeInfo) -> bool:
    """Whether the process that wrote `info` still lives. In another pid namespace nobody can say: then True."""
    if info.host != host_name() or info.boot_id != boot_id():
        return False
    if info.pid_namespace != pid_namespace():
        return True
    return start_ticks(info.pid) == info.start_ticks


def read_runtime_file(path: Path) -> RuntimeInfo | None:
    """None when there is none, or when what stands there is none (half written by a broken disk, another version)."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RuntimeInfo)
    except (OSError, msgspec.DecodeError):
        return None


def write_runtime_file(path: Path, info: RuntimeInfo) -> None:
    """Atomic, readable by the owner only."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(info)))
    os.replace(temporary, path)


def accepts(path: str) -> bool:
    """Whether something of ours listens on the Unix socket `path`: a process of this account or of root's. A runtime file
    that somebody else could write must not send us, and what we submit, to a scheduler of theirs.
    """
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(CONNECT_TIMEOUT_S)
        try:
            probe.connect(path)
            return os.getuid() == 0 or peer_uid(probe) in (0, os.getuid())
        except OSError:
            return False


def find_scheduler(data_dir: str | os.PathLike[str] | None = None) -> RuntimeInfo | None:
    """The running scheduler of this data folder on this machine, or None. Left-over files are seen through, not removed."""
    folder = data_folder(data_dir)
    for path in _runtime_files(folder):
        info = read_runtime_file(path)
        if info and info.data_dir == str(folder) and is_running(info) and accepts(info.socket):
            return info
    return None


def _runtime_files(folder: Path) -> tuple[Path, Path]:
    return runtime_file(runtime_folder(), scheduler_key(folder)), claim_file(folder)


def has_crashed(data_dir: str | os.PathLike[str] | None = None) -> bool:
    """Whether a scheduler of this data folder on this machine is gone without having taken its runtime file along."""
    folder = data_folder(data_dir)
    infos = (read_runtime_file(path) for path in _runtime_files(folder))
    return any(info and info.host == host_name() and not is_running(info) for info in infos)


def require_scheduler(data_dir: str | os.PathLike[str] | None = None) -> RuntimeInfo:
    """As find_scheduler; raises Unreached when there is none."""
    info = find_scheduler(data_dir)
    if info is None:
        raise Unreached(
            f"no scheduler runs for the data folder {data_folder(data_dir)}",
            hint="Start one with `gpucluster serve`; the first submission from a notebook starts one by itself.",
        )
    return info
