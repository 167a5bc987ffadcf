"""Who is at the other end of a Unix socket, as the kernel tells: for the scheduler, its clients and the supervisors."""

from __future__ import annotations

import socket
import struct

_UCRED = struct.Struct("3i")  # Linux, struct ucred: pid, uid, gid
_XUCRED = struct.Struct("2I")  # BSD and macOS, the beginning of struct xucred: version, effective uid
_XUCRED_BYTES = 76
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1


def peer_uid(connected: socket.socket) -> int:
    """The effective uid of the process that connected, or that listens, as it was then.

    Raises OSError when the system does not tell.
    """
    if hasattr(socket, "SO_PEERCRED"):
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        return int(_UCRED.unpack(credentials)[1])
    credentials = connected.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES)
    if len(credentials) < _XUCRED.size:
        raise OSError("the system does not say who is at the other end of the socket")
    return int(_XUCRED.unpack_from(credentials)[1])
