"""Errors over HTTP: the one mapping from the exception hierarchy to status and body. Clients import the hierarchy from here."""

from __future__ import annotations

import re

import msgspec

from ..model.errors import (
    ERRORS_BY_CODE,
    Conflict,
    Forbidden,
    GpuclusterError,
    InvalidRequest,
    NeverAsAsked,
    NotFound,
    NotSupported,
    TooLarge,
    Unauthenticated,
    Unavailable,
    VersionMismatch,
    error_from_code,
)
from .schemas import ErrorAnswer, ErrorBody

__all__ = [
    "ERRORS_BY_CODE",
    "Conflict",
    "Forbidden",
    "GpuclusterError",
    "InvalidRequest",
    "NeverAsAsked",
    "NotFound",
    "NotSupported",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "VersionMismatch",
    "error_body",
    "error_from_code",
    "http_status",
    "invalid_input",
]

#: First match counts, so subclasses stand before their bases.
_STATUS: tuple[tuple[type[GpuclusterError], int], ...] = (
    (NeverAsAsked, 422),
    (NotSupported, 422),
    (InvalidRequest, 400),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (VersionMismatch, 409),
    (TooLarge, 413),
    (Unavailable, 503),
)

#: What msgspec says about the place and the name of what it does not like.
_PLACE = re.compile(r" - at `\$?\.?(?P<path>[^`]*)`$")
_NAMED = re.compile(r"(?:unknown field|missing required field) `(?P<name>[^`]*)`")


def http_status(error: GpuclusterError) -> int:
    """The HTTP status of an error; 500 for one that has no other."""
    return next((status for cls, status in _STATUS if isinstance(error, cls)), 500)


def error_body(error: GpuclusterError) -> ErrorAnswer:
    """The JSON body of an error answer: ``{"error": {code, reason, field, hint}}``."""
    return ErrorAnswer(
        error=ErrorBody(code=error.code, reason=error.reason, field=error.field, hint=error.hint)
    )


def invalid_input(error: msgspec.ValidationError) -> InvalidRequest:
    """What is wrong with JSON that came in, with the field, e.g. ``roles[0].gpus``."""
    message = str(error)
    place = _PLACE.search(message)
    path = place["path"] if place else ""
    reason = message[: place.start()] if place else message
    named = _NAMED.search(reason)
    if named:
        path = f"{path}.{named['name']}" if path else named["name"]
        reason = "there is no such field" if "unknown" in reason else "this field is needed"
    return InvalidRequest(path or "body", reason)
