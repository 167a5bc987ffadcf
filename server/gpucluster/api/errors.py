"""Errors over HTTP: the one mapping from the exception hierarchy to status and body. Clients import the hierarchy from here."""

from __future__ import annotations

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


def http_status(error: GpuclusterError) -> int:
    """The HTTP status of an error; 500 for one that has no other."""
    return next((status for cls, status in _STATUS if isinstance(error, cls)), 500)


def error_body(error: GpuclusterError) -> ErrorAnswer:
    """The JSON body of an error answer: ``{"error": {code, reason, field, hint}}``."""
    return ErrorAnswer(
        error=ErrorBody(code=error.code, reason=error.reason, field=error.field, hint=error.hint)
    )
