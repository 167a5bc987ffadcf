"""The contract between agent, supervisor and worker: files of a task folder, channels, versions. Standard library only.

Task folder (one per attempt, role and rank; mode 0700), all files written atomically (temporary name, then rename):

    spec.json     by the agent, before anything starts: TaskSpec as JSON
    secrets.json  by the agent, 0600, the secret part of the environment; deleted by the supervisor once it has read it
    inputs/       by the agent: `pickle` and `buffer.0`, `buffer.1` … (hard links or copies of blobs)
    started       created with O_EXCL by whoever is first: the supervisor (then the task runs, once and only here) or a
                  recovering agent (then it is revoked and never runs). JSON {"by": "supervisor" | "agent", "pid",
                  "start_ticks", "boot_id", "host", "time_us"}
    lock          flock held exclusively by the supervisor from before it creates `started` until exit.json stands
                  there, or its death. exit.json counts only while nobody holds it
    worker.json   by the supervisor, before it lets the worker go on to its program: {"pid", "start_ticks", "boot_id",
                  "host", "session", "cgroup": path of the group that holds the tree | null, "cgroups": [path], "limits": how they
                  are kept}. No worker.json: nothing ran
    log           framed records (frames.py), appended by the supervisor alone
    steps.ndjson  step reports, one JSON object a line, appended by the supervisor; thinned when they are very many
    steps.fifo    by the supervisor before the task starts, which holds it open O_RDWR | O_NONBLOCK: a named pipe for the
                  step reports of processes that do not have the message socket (forked children, torchrun's, scripts of
                  a command job): one JSON object a line, below 4096 bytes, so lines of several writers never mix.
                  Optional: where it is missing, only the worker itself (or the command's first process) reports
    result.json   by the worker, after its files: ResultManifest as JSON, blobs named by SHA-256 of files in result/
    result/       by the worker: `pickle`, `buffer.0` …
    exit.json     by the supervisor, last of all, when no process of the task is left: TaskExit as JSON, "stop_cause" the
                  stop that it had given notice of before the end; with "never_ran": true and "retry": bool when the
                  program could not be started
    crash.txt     by the worker: what faulthandler says of its crash; the supervisor puts it at the end of the log
    scratch/      TMPDIR of the task

The folder is the task's own, so whatever stands in it may be hostile: it is opened and bounded by files.py and bounds.py
alone. When the task's end was told, all but `spec.json`, `started`, `lock`, `worker.json`, `log`, `steps.ndjson`,
`result.json` and `exit.json` is removed; `<folder>.taken` beside it says that the result is in the blobs.

`start_ticks` is field 22 of /proc/<pid>/stat; with the boot id it tells one process from a later one of the same pid.

Channels of the worker (file descriptors inherited, numbers in its environment):
    GPUCLUSTER_MESSAGE_FD  a stream socket to the supervisor; the worker sends packets: u32 little-endian length, u8
                           kind, payload. Kinds 1–6 as frames.Kind; 32 = step report (JSON), 33 = up (JSON), 34 = note
                           (UTF-8 text). A step report has the keys of model.jobs.Progress; a metric that is not finite
                           is the string "nan", "inf" or "-inf" (msgspec reads it with strict=False)
    fd 1, fd 2             pipes read by the supervisor: what C code and child processes write
Python's own sys.stdout/sys.stderr go through the message socket, so that prints, displays and errors keep their order.
Before a child process starts, and before the worker exits, it waits until the socket is drained, so that what the child
writes comes after what was printed before it.

Control socket of the supervisor (Unix stream, path in spec.json; JSON objects, one a line). Agent to supervisor:
    {"op": "hello", "protocol": [min, max]}       answered by {"event": "hello", "protocol": n, "state": "running",
                                                  "up": bool, "log_bytes": n, "steps_bytes": n}
    {"op": "stop", "cause": str, "grace_s": f}    repeated ones keep the stronger cause and the earlier end
    {"op": "suspend"} / {"op": "resume"}
Supervisor to every connected agent, after the answer to its hello:
    {"event": "up"}; {"event": "log", "bytes": n} (at most every few ms); {"event": "step", …Progress, "end": offset behind
    its line in steps.ndjson, "kept": false when it has none} (thinned in a flood, never the last); {"event": "exit", …TaskExit}
The supervisor's notice to stop a task is SIGTERM to its process group, and SIGCONT 0.2 s and 2 s later: Python notices a
signal that comes just before a blocking call only when another one interrupts that call.
SIGTERM to the supervisor means stop with the grace of spec.json: the way to end a task whose socket is gone.
"""

from __future__ import annotations

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1
#: Version of the task folder's layout; a scheduler adopts tasks whose format lies in this range.
DISK_FORMAT_MIN = 1
DISK_FORMAT = 1

PACKET_STEP = 32
PACKET_UP = 33
PACKET_NOTE = 34

ENV_MESSAGE_FD = "GPUCLUSTER_MESSAGE_FD"
ENV_TASK_DIR = "GPUCLUSTER_TASK_DIR"
#: In the environment of every process of a task, so that a tree whose supervisor died can be found: "<attempt>.<rank>".
ENV_TASK_ID = "GPUCLUSTER_TASK_ID"

SPEC = "spec.json"
SECRETS = "secrets.json"
STARTED = "started"
LOCK = "lock"
WORKER = "worker.json"
LOG = "log"
STEPS = "steps.ndjson"
STEPS_FIFO = "steps.fifo"
RESULT = "result.json"
EXIT = "exit.json"
CRASH = "crash.txt"
INPUT_FOLDER = "inputs"
RESULT_FOLDER = "result"
SCRATCH_FOLDER = "scratch"


def common_version(ours: tuple[int, int], theirs: tuple[int, int]) -> int | None:
    """The highest protocol version that both ranges hold, or None."""
    highest = min(ours[1], theirs[1])
    return highest if highest >= max(ours[0], theirs[0]) else None


# spec.json (TaskSpec): a JSON object with exactly these keys
#   format: int (DISK_FORMAT)          job_id, attempt_id: str      job_number, attempt_number: int
#   job_name, role, queue, owner_name, node: str     rank, local_rank, world_size: int
#   kind: "cell" | "function" | "command"
#   source: str                        command: [str]
#   interpreter: str                   cwd: str          sys_path: [str]
#   env: {str: str}                    the complete environment of the worker, less secrets
#   inputs: {"names": [str], "buffers": int} | null
#   outputs: [str]                     mutable_inputs: [str]        digest_budget_bytes: int
#   limits: {"memory_bytes": int | null, "cpu_milli": int | null, "pids": int | null,
#            "cpu_hard": bool (a quota; else a share under contention)}
#   grace_s: float                     control: str (path of the control socket)
#   bundle: str (folder that holds the worker's `gpucluster` package)
#   boot_id: str, host: str            where and when it was prepared
#   log_limit_bytes: int               stdout and stderr beyond this many bytes are dropped, with one STATUS "truncated"
