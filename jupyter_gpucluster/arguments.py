"""The line of `%submit` and `%%submit`: options from the one table (gpucluster.api.options), then, for `%submit`, code.

Written on IPython's `magic_arguments`, which gives `%submit?`; split by our own scanner, because what follows the
options is Python, whose quotes and brackets are none of a shell's business. `{expression}` in the *value* of an option is
evaluated in the notebook (`--name "run {i}"`, braces doubled to mean themselves); nothing else on the line, and nothing in
the cell, is expanded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from IPython.core import magic_arguments as _magic_arguments
from IPython.core.error import UsageError

from gpucluster.api.errors import GpuclusterError, InvalidRequest
from gpucluster.api.options import Option, options_for

from .errors import usage_error

#: One piece of a word: {…} and quoted parts may hold blanks.
_PIECE = re.compile(
    r"(?P<brace>\{[^{}\n]*\})"
    r"|'(?P<single>[^']*)'"
    r'|"(?P<double>(?:[^"\\]|\\.)*)"'
    r"|\\(?P<escaped>.)"
    r"|(?P<plain>[^\s'\"\\])",
    re.DOTALL,
)

Magic = TypeVar("Magic", bound=Callable[..., Any])

#: IPython's decorators, which have no types of their own.
argument: Callable[..., Callable[[Magic], Magic]] = _magic_arguments.argument
magic_arguments: Callable[..., Callable[[Magic], Magic]] = _magic_arguments.magic_arguments

OPTIONS: tuple[Option, ...] = tuple(options_for("magic"))
_BY_FLAG: dict[str, Option] = {flag: option for option in OPTIONS for flag in option.flags}


@dataclass(frozen=True)
class SubmitLine:
    """`values` by Option.key, parsed; `rest` = what follows the options, untouched; `help` = -h was there."""

    values: dict[str, Any] = field(default_factory=dict)
    rest: str = ""
    help: bool = False


def submit_arguments(function: Magic) -> Magic:
    """Decorate a magic with the options of the table (below `magic_arguments()`), so that its help lists them."""
    decorated = argument("-h", "--help", action="store_true", help="show this help")(function)
    for option in reversed(OPTIONS):
        decorated = argument(*option.flags, **_argument_settings(option))(decorated)
    return decorated


def _argument_settings(option: Option) -> dict[str, Any]:
    text = option.help
    if option.default is not None and not option.flag:
        text += f" (default: {option.default})"
    if option.not_yet:
        text += " (not in this version)"
    settings: dict[str, Any] = {"dest": option.key, "help": text.replace("%", "%%"), "default": None}
    if option.flag:
        return {**settings, "action": "store_const", "const": option.value}
    return {**settings, "metavar": option.metavar, "action": "append" if option.repeat else "store"}


def parse_line(parser: Any, line: str, user_ns: Mapping[str, Any], *, code_follows: bool) -> SubmitLine:
    """Read a line. `parser`: the magic's own. Raises UsageError, one line, for anything wrong in it."""
    words, rest = _split(line, code_follows)
    if "--help" in words:
        return SubmitLine(help=True)
    parser.allow_abbrev = False  # `--ti` must not mean --time today and be ambiguous tomorrow
    raw = vars(parser.parse_args(words))
    try:
        return SubmitLine({key: value for key, value in _parsed(raw, user_ns)}, rest)
    except GpuclusterError as error:
        raise usage_error(error) from None


def _parsed(raw: Mapping[str, Any], user_ns: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found: dict[str, Any] = {}
    for option in OPTIONS:
        value = raw.get(option.key)
        if value is None:
            continue
        if option.flag:
            found[option.key] = value
        elif option.repeat:
            found[option.key] = [option.parsed(expand(each, user_ns, option)) for each in value]
        else:
            found[option.key] = option.parsed(expand(value, user_ns, option))
    return list(found.items())


def expand(text: str, user_ns: Mapping[str, Any], option: Option) -> str:
    """`text` with each {expression} replaced by its value in `user_ns`. Raises InvalidRequest when one cannot be had."""
    if "{" not in text and "}" not in text:
        return text
    from IPython.utils.text import FullEvalFormatter

    try:
        return FullEvalFormatter().vformat(text, (), dict(user_ns))
    except Exception as error:
        raise InvalidRequest(
            f"--{option.name}",
            f"{text!r} cannot be expanded: {type(error).__name__}: {error}",
            "Braces hold Python expressions; write {{ and }} for braces themselves.",
        ) from None


def _split(line: str, code_follows: bool) -> tuple[list[str], str]:
    """Canonical words (`--gpus=2`) of the options that the line begins with, and the rest of the line as it stands."""
    words: list[str] = []
    position = _skip_blanks(line, 0)
    while position < len(line) and line[position] == "-":
        word, position = _word(line, position)
        if word == "--":
            position = _skip_blanks(line, position)
            break
        if word in ("-h", "--help"):
            return ["--help"], ""
        option, value = _option_of(word)
        if value is None and not option.flag:
            start = _skip_blanks(line, position)
            if start >= len(line):
                raise UsageError(f"--{option.name} needs a value: {option.metavar}")
            value, position = _word(line, start)
        words.append(f"--{option.name}" if option.flag else f"--{option.name}={value}")
        position = _skip_blanks(line, position)
    rest = line[position:]
    if not code_follows and rest and not rest.startswith("#"):
        raise UsageError(
            f"{rest.split()[0]!r} is no option; the code of %%submit stands in the lines below it"
        )
    return words, rest if code_follows else ""


def _option_of(word: str) -> tuple[Option, str | None]:
    """The option that a word begins, and the value in it ("--gpus=2", "-g2")."""
    name, equals, value = word.partition("=")
    option = _BY_FLAG.get(name)
    if option is None and not word.startswith("--") and len(word) > 2:
        option, equals, value = _BY_FLAG.get(word[:2]), "=", word[2:].removeprefix("=")
    if option is None:
        raise UsageError(f"{name} is no option of submit{_suggestion(name)}; %submit? lists them")
    if option.flag and equals:
        raise UsageError(f"--{option.name} takes no value")
    return option, (value if equals else None)


def _suggestion(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, _BY_FLAG, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _skip_blanks(line: str, position: int) -> int:
    while position < len(line) and line[position].isspace():
        position += 1
    return position


def _word(line: str, position: int) -> tuple[str, int]:
    """The word at `position` without its quotes, and where it ends."""
    pieces: list[str] = []
    while position < len(line) and not line[position].isspace():
        match = _PIECE.match(line, position)
        if match is None:
            raise UsageError(f"a quote is not closed: {line[position:]}")
        pieces.append(_unquoted(match))
        position = match.end()
    return "".join(pieces), position


def words_of(line: str) -> list[str]:
    """The words of a magic's line, without their quotes. Raises UsageError for a quote that is not closed."""
    words: list[str] = []
    position = _skip_blanks(line, 0)
    while position < len(line):
        word, position = _word(line, position)
        words.append(word)
        position = _skip_blanks(line, position)
    return words


def _unquoted(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return re.sub(r"\\([\"\\$`])", r"\1", match["double"])
    for kind in ("brace", "single", "escaped"):
        if match[kind] is not None:
            return match[kind]
    return match["plain"]
