"""The one table of submit options. `%submit`, `%%submit`, `gpucluster submit` and the submit form are made from it.

Each option says how its text is parsed and which field of a JobSubmission it fills. An option of which this version
knows only the name stands here too, with `not_yet` saying so: it is refused by name, never ignored.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..model.errors import InvalidRequest, NotSupported
from .schemas import RoleSubmission

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?\s*", re.IGNORECASE)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_size(text: str, field: str) -> int:
    """Bytes of a text such as "8G". K, M, G, T, P are powers of 1024, with or without B or iB; a bare number is bytes."""
    match = _SIZE.fullmatch(text)
    if not match:
        raise InvalidRequest(field, f"{text!r} is not a size", "Write for example 512M or 8G.")
    unit: int = 1024 ** "_kmgtp".index(match[2].lower() or "_")
    return round(float(match[1]) * unit)


def parse_duration(text: str, field: str) -> float:
    """Seconds (above 0) of "90", "90s", "30m", "1h30m", "2d", "1:30:00"."""
    stripped = text.strip().lower()
    seconds: float | None = None
    if re.fullmatch(r"\d+(\.\d+)?", stripped):
        seconds = float(stripped)
    elif re.fullmatch(r"\d+:\d{2}(:\d{2})?", stripped):
        parts = [int(part) for part in stripped.split(":")]
        if len(parts) == 2:
            parts.append(0)
        seconds = parts[0] * 3600.0 + parts[1] * 60 + parts[2]
    elif stripped and re.fullmatch(r"(?:\d+(?:\.\d+)?[smhd])+", stripped):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(stripped))
    if seconds is None or seconds <= 0:
        raise InvalidRequest(field, f"{text!r} is not a duration", "Write for example 90s, 30m, 2h or 1h30m.")
    return seconds


def parse_count(text: str, field: str) -> float:
    """A number of GPUs or CPUs: 0 or more, finite."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise InvalidRequest(field, f"{text!r} is not a number of 0 or more")
    return number


def parse_int(text: str, field: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest(field, f"{text!r} is not a whole number") from None


def parse_names(text: str, field: str) -> list[str]:
    """The names in "a,b c"; each must be a Python identifier."""
    names = [name for name in re.split(r"[,\s]+", text.strip()) if name]
    for name in names:
        if not name.isidentifier():
            raise InvalidRequest(field, f"{name!r} is not a Python name")
    return names


def parse_words(text: str, field: str) -> list[str]:
    """The words in "a,b"."""
    return [word for word in re.split(r"[,\s]+", text.strip()) if word]


def parse_env(text: str, field: str) -> tuple[str, str | None]:
    """(K, V) of "K=V"; (K, None) of "K" alone: the value is taken from the notebook's environment."""
    key, separator, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
        raise InvalidRequest(
            field, f"{key!r} is not a name for an environment variable", "Write --env NAME=VALUE."
        )
    return key, (value if separator else None)


def parse_text(text: str, field: str) -> str:
    return text


Parser = Callable[[str, str], Any]


@dataclasses.dataclass(frozen=True)
class Option:
    """One submit option.

    `name` is the long flag without dashes and the key under which a parsed value is found (dashes become underscores).
    `where`: "both", "magic" (needs a notebook) or "cli". `flag` = takes no value. `repeat` = may be given several times.
    `value` of a flag is what it sets (for pairs such as --wait/--no-wait, which share a `dest`).
    """

    name: str
    help: str
    short: str | None = None
    metavar: str | None = None
    parse: Parser = parse_text
    choices: tuple[str, ...] = ()
    default: str | None = None  # shown in help; the scheduler fills it in
    where: str = "both"
    flag: bool = False
    repeat: bool = False
    value: Any = True
    dest: str | None = None
    not_yet: str | None = None

    @property
    def key(self) -> str:
        return (self.dest or self.name).replace("-", "_")

    @property
    def flags(self) -> tuple[str, ...]:
        return (f"-{self.short}", f"--{self.name}") if self.short else (f"--{self.name}",)

    def parsed(self, text: str) -> Any:
        """The value of the option's text. Raises InvalidRequest (NotSupported for an option of a later version)."""
        field = f"--{self.name}"
        if self.choices and text not in self.choices:
            raise InvalidRequest(field, f"{text!r} is not one of {', '.join(self.choices)}")
        return self.parse(text, field)


OPTIONS: tuple[Option, ...] = (
    Option("gpus", "GPUs of one task; 0 for a CPU job", short="g", metavar="N", parse=parse_count, default="1"),
    Option("gpu-type", "GPU type, or several in order of preference", metavar="TYPE[,TYPE]", parse=parse_words),
    Option("cpus", "CPU cores of one task", metavar="N", parse=parse_count, default="the node's share of its GPUs"),
    Option("memory", "memory of one task", metavar="SIZE", parse=parse_size, default="the node's share of its GPUs"),
    Option("tasks", "number of tasks (a gang: they start together)", short="n", metavar="N", default="1"),
    Option("queue", "queue to submit to", short="q", metavar="QUEUE", default="the cluster's default queue"),
    Option("tier", "service tier; 0 and 2 come with a later version", metavar="{0,1,2}", choices=("0", "1", "2"),
           parse=parse_int, default="1"),
    Option("priority", "rank inside the queue; others than 0 come with a later version", metavar="P", parse=parse_int,
           default="0"),
    Option("name", "name of the job", metavar="NAME", default="the line of the cell that tells most"),
    Option("time", "time limit, e.g. 30m, 2h", metavar="DURATION", parse=parse_duration, default="none"),
    Option("in", "names to send in addition to those found in the cell", metavar="NAMES", parse=parse_names,
           where="magic", repeat=True),
    Option("out", "names to bring back in addition to those the cell assigns", metavar="NAMES", parse=parse_names,
           where="magic", repeat=True),
    Option("env", "environment variable; without =VALUE it is taken from here", metavar="K[=V]", parse=parse_env, repeat=True),
    Option("after", "start when these jobs have succeeded", metavar="JOB[,JOB]", parse=parse_words, repeat=True),
    Option("retries", "how often a failed attempt is tried again", metavar="N", parse=parse_int, default="0"),
    Option("requeue", "whether an attempt that was lost or evicted is tried again", choices=("always", "never"),
           metavar="{always,never}", default="always"),
    Option("grace", "time between the notice to stop and the kill", metavar="DURATION", parse=parse_duration, default="10s"),
    Option("share", "who may read code, logs and outputs", choices=("owner", "queue", "everyone"),
           metavar="{owner,queue,everyone}", default="owner"),
    Option("cwd", "working directory of the job", metavar="PATH", default="this one"),
    Option("wait", "wait for the job and show its output here (default)", flag=True, where="magic", dest="wait"),
    Option("no-wait", "return the job at once", flag=True, value=False, where="magic", dest="wait"),
    Option("follow", "wait and print the log", flag=True, where="cli"),
    Option("as", "bind the job to this name", metavar="NAME", where="magic"),
    Option("dry-run", "say what would be sent and where it would run; submit nothing", flag=True),
    # Known by name, refused until their part of the scheduler is there.
    Option("gpu-memory", "GPU memory that a GPU must have", metavar="SIZE", parse=parse_size,
           not_yet="GPU memory as a resource comes with a later version"),
    Option("affinity", "topology level that must hold the gang", metavar="LEVEL",
           not_yet="required affinity comes with a later version"),
    Option("image", "container image", metavar="IMAGE", not_yet="containers come with a later version"),
    Option("runtime", "process or docker", metavar="{process,docker}", not_yet="containers come with a later version"),
    Option("env-file", "requirements.txt, environment.yml or Dockerfile", metavar="FILE",
           not_yet="environments built from files come with a later version"),
    Option("like-here", "build the notebook's own environment", flag=True,
           not_yet="environments built from files come with a later version"),
)  # fmt: skip

OPTIONS_BY_KEY: dict[str, Option] = {option.name: option for option in OPTIONS}


def options_for(where: str) -> list[Option]:
    """The options of one place ("magic" or "cli"), in order."""
    return [option for option in OPTIONS if option.where in ("both", where)]


#: Option values that go into a JobSubmission as they are, by the name of its field.
_PLAIN_FIELDS = {
    "name": "name",
    "queue": "queue",
    "tier": "tier",
    "priority": "priority",
    "time": "time_limit_s",
    "grace": "grace_s",
    "retries": "retries",
    "requeue": "requeue",
    "share": "share",
}


def submission_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a JobSubmission that parsed option values fill; an option that is missing or None fills none.

    `values` holds, by `Option.key`, what `Option.parsed` gave (a list of such for a repeatable option). Environment,
    working directory, inputs and outputs are left to the caller, who knows where they come from. Raises NotSupported for
    what this version cannot do, InvalidRequest for what no version could.
    """
    given = {key: value for key, value in values.items() if value is not None}
    for option in OPTIONS:
        if option.not_yet and given.get(option.key):
            raise NotSupported(f"--{option.name}", option.not_yet)
    if given.get("tier", 1) != 1:
        raise NotSupported("--tier", "tiers other than 1 come with a later version")
    if given.get("priority", 0) != 0:
        raise NotSupported("--priority", "priorities come with a later version")
    if given.get("retries", 0) < 0:
        raise InvalidRequest("--retries", "a number of retries is 0 or more")
    fields = {field: given[key] for key, field in _PLAIN_FIELDS.items() if key in given}
    if "after" in given:
        fields["after"] = [job for jobs in given["after"] for job in jobs]
    fields["roles"] = [_role(given)]
    return fields


def _role(given: Mapping[str, Any]) -> RoleSubmission:
    gpus = given.get("gpus", 1)
    if gpus != int(gpus):
        raise NotSupported(
            "--gpus",
            f"{gpus:g} GPUs: parts of a GPU come with a later version",
            "Ask for 0 or for whole ones.",
        )
    return RoleSubmission(
        count=_task_count(str(given.get("tasks", "1"))),
        gpus=gpus,
        gpu_types=list(given.get("gpu_type", ())),
        cpus=given.get("cpus"),
        memory_bytes=given.get("memory"),
    )


def _task_count(text: str) -> int:
    if re.fullmatch(r"\s*\d+\s*:\s*\d+\s*", text):
        raise NotSupported(
            "--tasks", f"{text!r}: elastic jobs come with a later version", "Give one number of tasks."
        )
    count = parse_int(text, "--tasks")
    if count < 1:
        raise InvalidRequest("--tasks", "a job has at least 1 task")
    return count
