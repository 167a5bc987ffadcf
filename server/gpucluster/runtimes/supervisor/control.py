"""The control socket: JSON objects, one a line, to and from every agent that is connected (worker/protocol.py)."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
from collections.abc import Callable
from typing import Any

from gpucluster.worker.files import parse_object
from gpucluster.worker.peers import peer_uid

#: An agent that lets this many bytes pile up is let go; it finds all in the task folder when it comes back.
_MAX_BACKLOG = 4 << 20
_MAX_LINE = 1 << 20


class _Peer:
    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.incoming = b""
        self.outgoing = bytearray()
        #: Before the answer to its hello a peer is told nothing: what it is told after follows on what that says.
        self.is_greeted = False


class ControlServer:
    """Listens on the task's socket path. `handle(command, reply)` is called for each command that comes."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        path: str,
        handle: Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], None],
    ) -> None:
        self._selector = selector
        self._path = path
        self._handle = handle
        self._peers: list[_Peer] = []
        self._listener: socket.socket | None = None
        self._inode = 0
        self.listen()

    def listen(self) -> None:
        """Bind the path, again if somebody removed it. Without one the task runs on; the agent watches its lock."""
        if self._listener is not None and self._is_ours():
            return
        self._stop_listening()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            listener.bind(self._path)
            os.chmod(self._path, 0o600)
            listener.listen(8)
            self._inode = os.stat(self._path).st_ino
        except OSError:
            listener.close()
            return
        listener.setblocking(False)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def _is_ours(self) -> bool:
        try:
            return os.stat(self._path).st_ino == self._inode
        except OSError:
            return False

    def adopt(self, descriptor: int) -> None:
        """Take a connection that the agent handed over when it asked for the start."""
        self._add(socket.socket(fileno=descriptor))

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if self._is_allowed(connection):
            self._add(connection)
        else:
            connection.close()

    @staticmethod
    def _is_allowed(connection: socket.socket) -> bool:
        try:
            return peer_uid(connection) in (0, os.getuid())
        except OSError:
            return False

    def _add(self, connection: socket.socket) -> None:
        peer = _Peer(connection)
        self._peers.append(peer)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._serve(peer))

    def _serve(self, peer: _Peer) -> None:
        if peer not in self._peers:  # dropped while this wake-up was being handled
            return
        self._send_rest(peer)
        try:
            data = peer.connection.recv(64 << 10)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(peer.incoming) > _MAX_LINE:
            self._drop(peer)
            return
        *lines, peer.incoming = (peer.incoming + data).split(b"\n")
        for line in lines:
            self._serve_line(peer, line)

    def _serve_line(self, peer: _Peer, line: bytes) -> None:
        command = parse_object(line)
        if command is None:
            self._send(peer, {"event": "error", "reason": "not a JSON object"})
            return
        try:
            self._handle(command, lambda answer: self._send(peer, answer))
            peer.is_greeted |= command.get("op") == "hello"
        except (TypeError, ValueError, LookupError, ArithmeticError) as error:
            self._send(peer, {"event": "error", "reason": f"{type(error).__name__}: {error}"})

    def broadcast(self, event: dict[str, Any]) -> None:
        """Send an event to every connected agent that has said hello."""
        for peer in list(self._peers):
            if peer.is_greeted:
                self._send(peer, event)

    def _send(self, peer: _Peer, event: dict[str, Any]) -> None:
        if peer not in self._peers:
            return
        peer.outgoing += json.dumps(event).encode() + b"\n"
        self._send_rest(peer)
        if len(peer.outgoing) > _MAX_BACKLOG:
            self._drop(peer)

    def _send_rest(self, peer: _Peer) -> None:
        was_waiting = self._waits_to_write(peer)
        try:
            while peer.outgoing:
                sent = peer.connection.send(peer.outgoing)
                del peer.outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            peer.outgoing.clear()  # its end shows when it is read
        if bool(peer.outgoing) != was_waiting:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.outgoing else 0)
            self._selector.modify(peer.connection, events, lambda: self._serve(peer))

    def _waits_to_write(self, peer: _Peer) -> bool:
        return bool(self._selector.get_key(peer.connection).events & selectors.EVENT_WRITE)

    def _drop(self, peer: _Peer) -> None:
        self._peers.remove(peer)
        self._selector.unregister(peer.connection)
        peer.connection.close()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def close(self, patience_s: float = 1.0) -> None:
        """Send what is left (for that long at most), remove the path, let the peers go."""
        if self._listener is not None and self._is_ours():
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        self._stop_listening()
        for peer in list(self._peers):
            peer.connection.settimeout(patience_s)
            with contextlib.suppress(OSError):
                peer.connection.sendall(peer.outgoing)
            self._drop(peer)
