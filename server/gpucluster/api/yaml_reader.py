"""Reads YAML into checked values and remembers where everything stood, so that an error names file, line and field.

Problems are collected, not raised one by one: a reader goes on with a field's default, and `finish` reports them all.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml

from ..model.errors import GpuclusterError, InvalidRequest
from .options import parse_duration, parse_size

#: A configuration file larger than this is refused unread (bytes).
MAX_FILE_BYTES = 1 << 20
#: Aliases let a small file describe an enormous tree; this many values are read at most.
MAX_VALUES = 20_000


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `line` counts from 1; `field` is a path such as ``queues[1].max``, "" for the file."""

    line: int | None
    field: str
    reason: str
    hint: str | None = None


class InvalidConfig(InvalidRequest):
    """A configuration file that cannot be used. Every problem that was found is in `problems` and in the text."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = sorted(problems, key=lambda problem: problem.line or 0)
        first = self.problems[0]
        super().__init__(_place(file, first), _text(first))
        self.reason = "\n".join(self._lines())

    def _lines(self) -> list[str]:
        return [f"{_place(self.file, problem)}: {_text(problem)}" for problem in self.problems]

    def __str__(self) -> str:
        return self.reason


def _place(file: str, problem: Problem) -> str:
    at = f"{file}:{problem.line}" if problem.line else file
    return f"{at}: {problem.field}" if problem.field else at


def _text(problem: Problem) -> str:
    if not problem.hint:
        return problem.reason
    stop = "" if problem.reason.endswith((".", "?", "!")) else "."
    return f"{problem.reason}{stop} {problem.hint}"


@dataclasses.dataclass(frozen=True)
class Value:
    """A YAML node and its path in the file."""

    node: yaml.Node
    field: str
    key_node: yaml.Node | None = None

    @property
    def line(self) -> int:
        """The line of its key, where it has one: that is where people look."""
        return int((self.key_node or self.node).start_mark.line) + 1

    @property
    def is_null(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag == "tag:yaml.org,2002:null"

    @property
    def text(self) -> str | None:
        """The scalar as it is written (so that 1:30 or 1e3 are not turned into numbers); None for anything else."""
        return str(self.node.value) if isinstance(self.node, yaml.ScalarNode) else None

    @property
    def kind(self) -> str:
        if isinstance(self.node, yaml.MappingNode):
            return "a mapping"
        if isinstance(self.node, yaml.SequenceNode):
            return "a list"
        return "nothing" if self.is_null else f"{self.text!r}"


class YamlReader:
    """Checked reading of one file. Each `…` method notes a problem and returns its default when the value is wrong."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._values_read = 0

    def finish(self) -> None:
        """Raises InvalidConfig when anything was wrong."""
        if self.problems:
            raise InvalidConfig(self.file, self.problems)

    def problem(self, value: Value | None, reason: str, hint: str | None = None, key: str = "") -> None:
        field = f"{value.field}.{key}".strip(".") if value else key
        self.problems.append(Problem(value.line if value else None, field, reason, hint))

    # ---- the file

    def compose(self, content: bytes) -> Value | None:
        """The root of the file, None when it is empty. Raises InvalidConfig when it is not YAML."""
        if len(content) > MAX_FILE_BYTES:
            self.problem(
                None,
                f"{len(content)} bytes are too many for a configuration file",
                f"At most {MAX_FILE_BYTES}.",
            )
            self.finish()
        try:
            node = yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            self.problems.append(Problem(line, "", "this is not UTF-8 text"))
        except yaml.YAMLError as error:
            self.problems.append(_syntax_problem(error))
        except RecursionError:
            self.problem(None, "values are nested too deeply")
        self.finish()
        return Value(node, "") if node is not None else None

    # ---- containers

    def mapping(
        self, value: Value, known: Iterable[str], later: Mapping[str, str] | None = None
    ) -> dict[str, Value]:
        """The entries of a mapping whose keys must be `known`; `later` names keys that only a later version knows."""
        entries = self.open_mapping(value)
        known, later = tuple(known), later or {}
        for key in [key for key in entries if key not in known]:
            entry = entries.pop(key)
            if key in later:
                self.problem(entry, later[key], "Take it out until then.")
            else:
                self.problem(entry, "there is no such key", suggestion(key, known))
        return entries

    def open_mapping(self, value: Value) -> dict[str, Value]:
        """The entries of a mapping with keys of the user's choice. A key that stands twice is a problem."""
        if value.is_null:
            return {}
        if not isinstance(value.node, yaml.MappingNode):
            self.problem(value, f"a mapping (key: value) is expected here, not {value.kind}")
            return {}
        entries: dict[str, Value] = {}
        for key_node, entry_node in value.node.value:
            if not self._count(value):
                return {}
            key = Value(key_node, value.field)
            name = key.text
            if name is None:
                self.problem(key, "a key must be a single word")
                continue
            if name in entries:
                first = entries[name].line
                self.problem(key, f"this key stands twice (first in line {first})", key=name)
                continue
            entries[name] = Value(entry_node, f"{value.field}.{name}".strip("."), key_node)
        return entries

    def sequence(self, value: Value) -> list[Value]:
        if value.is_null:
            return []
        if not isinstance(value.node, yaml.SequenceNode):
            self.problem(value, f"a list is expected here, not {value.kind}")
            return []
        if not all(self._count(value) for _ in value.node.value):
            return []
        return [Value(node, f"{value.field}[{index}]") for index, node in enumerate(value.node.value)]

    def _count(self, value: Value) -> bool:
        """False once far too many values were read (an alias that repeats itself)."""
        self._values_read += 1
        if self._values_read == MAX_VALUES:
            self.problem(value, f"more than {MAX_VALUES} values stand here; does an alias contain itself?")
        return self._values_read < MAX_VALUES

    # ---- scalars

    def text(self, value: Value, default: str = "", pattern: str | None = None, what: str = "text") -> str:
        text = value.text
        if text is None or value.is_null:
            self.problem(value, f"{what} is expected here, not {value.kind}")
            return default
        if pattern and not re.fullmatch(pattern, text):
            self.problem(value, f"{text!r} is not {what}")
            return default
        return text

    def integer(self, value: Value, default: int, least: int = 0, most: int = 10**9) -> int:
        text = value.text or ""
        if not re.fullmatch(r"[+-]?\d{1,18}", text) or not least <= int(text) <= most:
            self.problem(value, f"a whole number from {least} to {most} is expected here, not {value.kind}")
            return default
        return int(text)

    def size(self, value: Value, default: int) -> int:
        """Bytes."""
        return int(self.parsed(value, default, parse_size))

    def duration(self, value: Value, default: float) -> float:
        """Seconds."""
        return float(self.parsed(value, default, parse_duration))

    def parsed(self, value: Value, default: Any, parse: Callable[[str, str], Any]) -> Any:
        """The value by a parser of the option table; what it raises becomes a problem of this line."""
        if value.text is None or value.is_null:
            self.problem(value, f"a single value is expected here, not {value.kind}")
            return default
        try:
            return parse(value.text, value.field)
        except GpuclusterError as error:
            self.problem(value, error.reason, error.hint)
            return default

    def choice(
        self, value: Value, default: str, choices: Iterable[str], later: Mapping[str, str] | None = None
    ) -> str:
        text, choices = value.text, tuple(choices)
        if text in choices and not value.is_null:
            return str(text)
        if later and text in later:
            self.problem(value, later[str(text)], f"This version knows {_listed(choices)}.")
        else:
            self.problem(value, f"{_listed(choices, 'or')} is expected here, not {value.kind}")
        return default

    def texts(self, value: Value, pattern: str | None = None, what: str = "text") -> tuple[str, ...]:
        """A list of texts; a single one may stand without its brackets."""
        if value.text is not None and not value.is_null:
            return (self.text(value, "", pattern, what),)
        found = [self.text(item, "", pattern, what) for item in self.sequence(value)]
        return tuple(text for text in found if text)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Asks "did you mean …" when a known word is near, else all of them."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"Did you mean {near[0]}?" if near else f"Known here: {', '.join(known)}."


def _listed(words: tuple[str, ...], joiner: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {joiner} {words[-1]}"


def _syntax_problem(error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = mark.line + 1 if mark else None
    reason = str(getattr(error, "problem", None) or error)
    if r"'\t'" in reason:
        return Problem(line, "", "a tab stands where YAML wants spaces", "Indent with spaces.")
    if "but found another document" in reason:
        return Problem(
            line, "", "a second document begins here", "The file must hold one document (no `---` inside)."
        )
    if getattr(error, "context", None):
        reason = f"{reason} ({error.context})"  # type: ignore[attr-defined]
    return Problem(line, "", f"this is not YAML: {reason}")
