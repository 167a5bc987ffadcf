"""Who acts: a Principal from the credential of a connection, never from what a request says.

On the Unix socket the kernel vouches for the peer's uid. A TCP connection has no credential that this version knows,
so the service does not listen on TCP and a connection of any other family is refused here as well.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import time
from collections.abc import Iterable
from typing import Protocol

from tornado.httputil import HTTPServerRequest

from ..model.errors import Unauthenticated
from ..model.principals import Principal
from ..worker.peers import peer_uid

UNIX_ISSUER = "unix"
#: Names and groups of an account are looked up again after this time.
ACCOUNT_CACHE_S = 30.0


class Authenticator(Protocol):
    """Turns the credential of a request into a principal."""

    def principal_of(self, request: HTTPServerRequest) -> Principal:
        """Raises Unauthenticated."""
        ...


class PeerAuthenticator:
    """The account at the other end of the Unix socket. `admins`: uids that administer beside root and our own."""

    def __init__(self, admins: Iterable[int] = ()) -> None:
        self._admins = frozenset({0, os.getuid(), *admins})
        self._known: dict[int, tuple[float, Principal]] = {}

    def principal_of(self, request: HTTPServerRequest) -> Principal:
        stream = getattr(request.connection, "stream", None)
        peer = getattr(stream, "socket", None)
        if peer is None or peer.family != socket.AF_UNIX:
            raise Unauthenticated(
                "this address takes no request without a credential", hint="Use the scheduler's Unix socket."
            )
        return self.principal_of_uid(_uid_of(peer))

    def principal_of_uid(self, uid: int) -> Principal:
        known = self._known.get(uid)
        now = time.monotonic()
        if known is not None and now - known[0] < ACCOUNT_CACHE_S:
            return known[1]
        principal = _principal(uid, is_admin=uid in self._admins)
        self._known[uid] = (now, principal)
        return principal


def _uid_of(peer: socket.socket) -> int:
    """Raises Unauthenticated."""
    try:
        return peer_uid(peer)
    except OSError as error:
        raise Unauthenticated(f"the system does not say who connects: {error}") from None


def _principal(uid: int, *, is_admin: bool) -> Principal:
    try:
        account = pwd.getpwuid(uid)
    except KeyError:  # an account without an entry, as in many containers
        return Principal(issuer=UNIX_ISSUER, subject=str(uid), name=f"uid-{uid}", is_admin=is_admin)
    groups = tuple(sorted(_group_names(account)))
    return Principal(
        issuer=UNIX_ISSUER, subject=str(uid), name=account.pw_name, groups=groups, is_admin=is_admin
    )


def _group_names(account: pwd.struct_passwd) -> set[str]:
    names = set()
    for gid in os.getgrouplist(account.pw_name, account.pw_gid):
        try:
            names.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return names
