"""Structs to JSON columns and back, without loss: resource vectors, NaN metrics, text that is no valid Unicode."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from ..model.jobs import Progress
from ..model.resources import Resources

T = TypeVar("T")
_SURROGATE = re.compile("[\ud800-\udfff]")


def _encode_hook(value: Any) -> Any:
    if isinstance(value, Resources):
        return value.to_dict()
    raise NotImplementedError(f"no column form for {type(value).__name__}")


def _decode_hook(kind: type, value: Any) -> Any:
    if kind is Resources:
        return Resources(value)
    raise NotImplementedError(f"no column form for {kind.__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_encode_hook)
_progress_decoder = msgspec.json.Decoder(Progress)


def encode(value: Any) -> str:
    """The JSON text of a struct. Lone surrogates (undecodable file names in messages) become U+FFFD: one odd character
    must not make a whole commit impossible, for ever.
    """
    try:
        return _encoder.encode(value).decode()
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, enc_hook=_encode_hook)
        return _encoder.encode(_valid_unicode(plain)).decode()


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """A decoder of columns that `encode` wrote."""
    return msgspec.json.Decoder(kind, dec_hook=_decode_hook)


def encode_progress(progress: Progress) -> str:
    """As `encode`; numbers that JSON lacks (NaN, infinities: a diverging loss) are kept as their names."""
    if all(map(math.isfinite, progress.metrics.values())):
        return encode(progress)
    named = {key: (value if math.isfinite(value) else str(value)) for key, value in progress.metrics.items()}
    return encode({**msgspec.to_builtins(progress), "metrics": named})


def decode_progress(text: str) -> Progress:
    try:
        return _progress_decoder.decode(text)
    except msgspec.ValidationError:
        plain = json.loads(text)
        plain["metrics"] = {key: float(value) for key, value in plain["metrics"].items()}
        return msgspec.convert(plain, Progress)


def column_text(text: str | None) -> str | None:
    """Text fit for a column that is searched: without NUL (PostgreSQL refuses it) and without lone surrogates."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return _valid_text(text).replace("\0", "\ufffd")


def rest_of(kind: type[msgspec.Struct], apart: Iterable[str]) -> type[msgspec.Struct]:
    """A struct of the fields of `kind` that have no column of their own.

    Made from `kind` itself, so that a field added there later is kept without a change here.
    """
    kept = [field for field in msgspec.structs.fields(kind) if field.name not in set(apart)]
    fields: list[Any] = []
    for field in kept:
        if field.default is not msgspec.NODEFAULT:
            fields.append((field.name, field.type, field.default))
        elif field.default_factory is not msgspec.NODEFAULT:
            fields.append((field.name, field.type, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append((field.name, field.type))
    return msgspec.defstruct(f"{kind.__name__}Rest", fields, kw_only=True, omit_defaults=True)


def as_rest(rest: type[msgspec.Struct], value: msgspec.Struct) -> msgspec.Struct:
    """The part of `value` that `rest` (of `rest_of`) holds."""
    return rest(**{name: getattr(value, name) for name in rest.__struct_fields__})


def fields_of(rest: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(rest)


def _valid_text(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)


def _valid_unicode(value: Any) -> Any:
    if isinstance(value, str):
        return _valid_text(value)
    if isinstance(value, dict):
        return {_valid_unicode(key): _valid_unicode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_valid_unicode(item) for item in value]
    return value
