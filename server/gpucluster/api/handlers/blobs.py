"""Blobs by SHA-256: what is missing, upload in chunks, read. Knowing a hash is no right to read (store/blobs.py)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import BinaryIO

from tornado.iostream import StreamClosedError

from ...model.errors import InvalidRequest, NotFound
from ..schemas import CHUNK_BYTES, BlobStatus, Missing, MissingRequest
from .base import ApiHandler

_READ_BYTES = 1 << 20
_RANGE = re.compile(r"bytes=(\d+)-")


class MissingHandler(ApiHandler):
    """`POST /v1/blobs/missing`"""

    async def post(self) -> None:
        hashes = self.decode(MissingRequest).hashes
        missing = await asyncio.to_thread(self.parts.store.blobs.missing, hashes, self.principal.id)
        self.answer(Missing(missing=missing))


class BlobHandler(ApiHandler):
    """`PUT /v1/blobs/{sha}?offset=N&total=N` takes a chunk; `GET …?status=1` tells how far an upload is.

    `GET` and `HEAD` give the content to whom it belongs and to readers of a job that it is part of; `Range: bytes=N-`
    goes on after a broken download.
    """

    max_body_bytes = CHUNK_BYTES

    async def put(self, sha: str) -> None:
        self.known_queries("offset", "total")
        offset = self.query_int("offset", 0) or 0
        total = self.query_int("total", len(self._body))
        status = await asyncio.to_thread(
            self.parts.store.blobs.upload, sha, self.principal.id, offset, bytes(self._body), total or 0
        )
        self.answer(
            BlobStatus(hash=sha, received_bytes=status.received_bytes, complete=status.complete),
            201 if status.complete else 200,
        )

    async def head(self, sha: str) -> None:
        await self._require_readable(sha)
        size = await asyncio.to_thread(self.parts.store.blobs.size, sha)
        self.set_header("Content-Length", str(size))
        self.set_header("Content-Type", "application/octet-stream")
        await self.finish()

    async def get(self, sha: str) -> None:
        self.known_queries("status", "job")
        if self.query_flag("status"):
            status = await asyncio.to_thread(self.parts.store.blobs.status, sha, self.principal.id)
            self.answer(BlobStatus(hash=sha, received_bytes=status.received_bytes, complete=status.complete))
            return
        await self._require_readable(sha)
        await self._send(sha)

    async def _require_readable(self, sha: str) -> None:
        """Raises NotFound: who may not read a blob does not learn that it is there."""
        blobs = self.parts.store.blobs
        if await asyncio.to_thread(blobs.may_read, sha, self.principal.id):
            return
        for job_id in await asyncio.to_thread(blobs.blob_jobs, sha):
            job = await self.parts.directory.find(job_id)
            if self.parts.visibility.rights_on(self.principal, job).read:
                return
        raise NotFound(f"there is no blob {sha}")

    async def _send(self, sha: str) -> None:
        size = await asyncio.to_thread(self.parts.store.blobs.size, sha)
        start = self._start(size)
        file = await asyncio.to_thread(self.parts.store.blobs.open_read, sha, start)
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Content-Length", str(size - start))
        if start:
            self.set_status(206)
            self.set_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        try:
            async for chunk in _chunks(file):
                self.write(chunk)
                await self.flush()
                self.parts.activity.seen()
            await self.finish()
        except StreamClosedError:
            pass
        finally:
            file.close()

    def _start(self, size: int) -> int:
        """Where to begin, from the Range header; only `bytes=N-` is known here."""
        header = self.request.headers.get("Range")
        if header is None:
            return 0
        match = _RANGE.fullmatch(header.strip())
        if not match or int(match[1]) > size:
            raise InvalidRequest("Range", f"{header!r} is not bytes=N- within {size} bytes")
        return int(match[1])


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, _READ_BYTES):
        yield chunk
