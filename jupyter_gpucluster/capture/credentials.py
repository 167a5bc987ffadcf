"""What looks like a credential is stopped before it is sent, unless it was asked for by name (DESIGN section 4).

Looked at are the names and values that would be sent, the keys and values of a dict, the items of a list and the
attributes of an object, one level deep. A name counts when it says so in a whole word (`api_key`, `dbPassword`; not
`tokenizer`) and a text stands behind it; a value counts when it has the form of a key that a known service gives out.
"""

from __future__ import annotations

import itertools
import re
import types
from collections.abc import Iterator
from typing import Any

#: Only so much of a text is looked at, and so many parts of a container.
_TEXT_LIMIT = 16_384
_PARTS_LIMIT = 200

_WORDS = frozenset((
    "password", "passwd", "passphrase", "pwd", "secret", "credential", "credentials", "apikey",
    "accesskey", "privatekey", "secretkey",
))  # fmt: skip
_PAIRS = frozenset((
    "api key", "access key", "private key", "secret key", "auth key", "account key", "license key", "api token",
))  # fmt: skip
#: A name that ends so speaks about a credential and holds none: `password_file`, `token_type`.
_ABOUT = frozenset((
    "name", "names", "file", "path", "dir", "env", "var", "url", "endpoint", "field", "column", "id", "ids", "type", "kind",
    "header", "prompt", "hint", "label", "policy", "pattern", "len", "length", "count", "limit", "class", "level",
))  # fmt: skip
#: "token" is also a word of language models: behind these it is no credential.
_TOKEN_OF_TEXT = frozenset((
    "pad", "eos", "bos", "unk", "mask", "sep", "cls", "start", "stop", "end", "begin", "special", "next",
    "prev", "last", "first", "image", "new", "max", "min", "num", "n", "text", "eot", "vocab",
))  # fmt: skip
_FORMS = (
    (re.compile(r"\bsk-[A-Za-z0-9_-]{20,}"), "a secret key (sk-…)"),
    (re.compile(r"\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}"), "a GitHub token"),
    (re.compile(r"\bglpat-[\w-]{20,}"), "a GitLab token"),
    (re.compile(r"\bhf_[A-Za-z0-9]{30,}"), "a Hugging Face token"),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), "an AWS access key"),
    (re.compile(r"\bAIza[\w-]{35}"), "a Google API key"),
    (re.compile(r"\bxox[abeoprs]-[\w-]{10,}"), "a Slack token"),
    (re.compile(r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"), "a JSON web token"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"), "a private key"),
)


def credential_in(name: str, value: Any) -> str | None:
    """Why `value`, called `name`, looks like a credential; None when it does not."""
    found = _named(name, value) or _formed(value)
    if found is not None:
        return found
    for part_name, part in _parts(value):
        found = _named(part_name, part) or _formed(part)
        if found is not None:
            return (
                f"its {part_name} {found.removeprefix('it ')}"
                if part_name
                else f"one of its items {found.removeprefix('it ')}"
            )
    return None


def credential_in_text(text: str) -> str | None:
    """What a piece of text holds that has the form of a credential."""
    return next((what for form, what in _FORMS if form.search(text[:_TEXT_LIMIT])), None)


def _named(name: str, value: Any) -> str | None:
    text = _text(value)
    if type(value).__name__ in ("SecretStr", "SecretBytes"):
        return "it is marked as a secret"
    words = _words_of(name)
    if isinstance(value, dict) and words & {"credential", "credentials", "secrets"}:
        return "it is called so" if any(_text(part) for part in value.values()) else None
    if text is None or not text.strip() or _ABOUT.intersection(_split(name)[-1:]):
        return None
    if words & _WORDS or any(" ".join(pair) in _PAIRS for pair in _neighbours(name)):
        return "it is called so"
    if "token" in words and not words & _TOKEN_OF_TEXT and re.fullmatch(r"[\w.~+/=:-]{8,}", text):
        return "it is called so"
    return None


def _formed(value: Any) -> str | None:
    text = _text(value)
    what = credential_in_text(text) if text else None
    return f"it has the form of {what}" if what else None


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return bytes(value[:_TEXT_LIMIT]).decode("latin-1")
    return None


def _split(name: str) -> list[str]:
    """The words of snake_case, camelCase and kebab-case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def _words_of(name: str) -> frozenset[str]:
    return frozenset(_split(name))


def _neighbours(name: str) -> Iterator[tuple[str, str]]:
    words = _split(name)
    return itertools.pairwise(words)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Named parts of a container or an object, one level deep."""
    if isinstance(value, dict):
        for key, part in list(value.items())[:_PARTS_LIMIT]:
            yield (key if isinstance(key, str) else ""), part
    elif isinstance(value, (list, tuple, set, frozenset)):
        for index, part in enumerate(value):
            if index >= _PARTS_LIMIT:
                break
            yield "", part
    elif not isinstance(value, (types.ModuleType, types.FunctionType)):
        for attributes in (_attributes_of_class(value), getattr(value, "__dict__", None)):
            if isinstance(attributes, dict):
                yield from list(attributes.items())[:_PARTS_LIMIT]


def _attributes_of_class(value: Any) -> dict[str, Any] | None:
    """Of a class that the notebook defines: it goes along with its attributes."""
    cls = value if isinstance(value, type) else type(value)
    return dict(vars(cls)) if cls.__module__ == "__main__" else None
