"""The one exception hierarchy. Mapped once to HTTP (api/errors.py), once to exit codes (cli.py), once to notebook text."""

from __future__ import annotations


class GpuclusterError(Exception):
    """Base of every error that is meant for a person. `str(error)` is one clear sentence or two."""

    code = "error"

    def __init__(self, reason: str, *, field: str | None = None, hint: str | None = None) -> None:
        self.reason = reason
        self.field = field
        self.hint = hint
        super().__init__(reason)

    def __str__(self) -> str:
        text = f"{self.field}: {self.reason}" if self.field else self.reason
        return f"{text}\n{self.hint}" if self.hint else text


class InvalidRequest(GpuclusterError):
    """The input is wrong; `field` names which part (an option, a line of cluster.yaml, a key of the JSON body)."""

    code = "invalid_request"

    def __init__(self, field: str, reason: str, hint: str | None = None) -> None:
        super().__init__(reason, field=field, hint=hint)


class NeverAsAsked(InvalidRequest):
    """The request is well formed and can never be satisfied by this cluster; `hint` says what to ask for instead."""

    code = "never_as_asked"


class NotSupported(InvalidRequest):
    """An option that this version knows by name and cannot do yet. Never silently ignored."""

    code = "not_supported"


class NotFound(GpuclusterError):
    """No such job, queue, node or blob (or the principal may not know of it)."""

    code = "not_found"


class Forbidden(GpuclusterError):
    """The principal is known and may not do this."""

    code = "forbidden"


class Unauthenticated(GpuclusterError):
    """No valid credential came with the request."""

    code = "unauthenticated"


class Conflict(GpuclusterError):
    """The request contradicts the present state (cancel of an ended job, an idempotency key used for another job)."""

    code = "conflict"


class TooLarge(GpuclusterError):
    """A payload, blob or message is over its size budget."""

    code = "too_large"


class Unavailable(GpuclusterError):
    """The scheduler cannot take the request now (away, store locked, disk full); nothing was done, a retry is safe."""

    code = "unavailable"


class VersionMismatch(GpuclusterError):
    """Two parts of the product speak no common protocol version, or a data folder comes from a newer version."""

    code = "version_mismatch"


ERRORS_BY_CODE: dict[str, type[GpuclusterError]] = {
    cls.code: cls
    for cls in (
        GpuclusterError, InvalidRequest, NeverAsAsked, NotSupported, NotFound, Forbidden, Unauthenticated, Conflict,
        TooLarge, Unavailable, VersionMismatch,
    )
}  # fmt: skip


def error_from_code(
    code: str, reason: str, field: str | None = None, hint: str | None = None
) -> GpuclusterError:
    """Rebuild an error that came over the wire; an unknown code (a newer peer) becomes the base class."""
    cls = ERRORS_BY_CODE.get(code, GpuclusterError)
    if issubclass(cls, InvalidRequest):
        return cls(field or "request", reason, hint)
    return cls(reason, field=field, hint=hint)
