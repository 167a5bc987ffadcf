from __future__ import annotations

import msgspec
import pytest

from gpucluster.api.errors import ERRORS_BY_CODE, GpuclusterError, InvalidRequest, error_body, http_status
from gpucluster.api.handlers.base import decode_body
from gpucluster.api.schemas import JobSubmission
from gpucluster.api.transport import ConnectionLost, error_of, parse_address


@pytest.mark.parametrize("cls", ERRORS_BY_CODE.values(), ids=lambda cls: cls.code)
def test_error_comes_back_as_it_was_after_the_wire(cls: type[GpuclusterError]) -> None:
    error = cls("field", "reason", "hint") if issubclass(cls, InvalidRequest) else cls("reason", hint="hint")
    back = error_of(http_status(error), msgspec.json.encode(error_body(error)))
    assert type(back) is cls
    assert (back.reason, back.field, back.hint) == (error.reason, error.field, error.hint)


@pytest.mark.parametrize(
    ("status", "body", "code", "words"),
    [
        (401, b"", "unauthenticated", "credential"),
        (403, b'{"message": "XSRF cookie does not match"}', "forbidden", "XSRF cookie does not match"),
        (404, b"<html>", "not_found", "knows nothing"),
        (413, b"", "too_large", "size limit"),
        (500, b"oops", "unavailable", "status 500"),
        (503, b'{"message": "down"}', "unavailable", "down"),
    ],
)
def test_error_of_another_server_gets_a_sentence(status: int, body: bytes, code: str, words: str) -> None:
    error = error_of(status, body)
    assert error.code == code
    assert words in str(error)


def test_lost_gateway_counts_as_a_lost_connection() -> None:
    assert isinstance(error_of(502, b'{"error": {"code": "unavailable", "reason": "x"}}'), ConnectionLost)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"kind": "cell"}', "source"),
        (b'{"kind": "pod", "source": "", "idempotency_key": "k"}', "kind"),
        (b'{"kind": "cell", "source": "", "idempotency_key": "k", "gpuz": 1}', "gpuz"),
        (b'{"kind": "cell", "source": "", "idempotency_key": "k", "roles": [{"gpuz": 1}]}', "roles[0].gpuz"),
        (
            b'{"kind": "cell", "source": "", "idempotency_key": "k", "roles": [{"gpus": "1"}]}',
            "roles[0].gpus",
        ),
        (b"[]", "body"),
        (b"nonsense", "body"),
        (b'"\xff"', "body"),
        (b"[" * 100_000, "body"),
    ],
)
def test_bad_body_names_the_field(body: bytes, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode_body(body, JobSubmission)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("text", "base", "path"),
    [
        ("unix:/run/x.sock", "http://scheduler", "/run/x.sock"),
        ("unix:///run/x.sock", "http://scheduler", "/run/x.sock"),
        ("/run/x.sock", "http://scheduler", "/run/x.sock"),
        ("http://h:1/a%20b/gpucluster/api/v1/", "http://h:1/a%20b/gpucluster/api", None),
        ("https://h/", "https://h", None),
    ],
)
def test_addresses_are_read(text: str, base: str, path: str | None) -> None:
    address = parse_address(text)
    assert (address.base_url, address.socket_path) == (base, path)


@pytest.mark.parametrize("text", ["", "x", "ftp://h", "http://", "unix:x", "http://[", "http://h:port"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not an address"):
        parse_address(text)


def test_token_is_not_shown() -> None:
    assert "hidden" not in repr(parse_address("http://h", token="hidden"))
