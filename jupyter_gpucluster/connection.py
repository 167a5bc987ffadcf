"""One client per kernel: made when first needed, made anew after a fork, and for another address.

The client itself reconnects and finds a restarted scheduler again (gpucluster.api.client).
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpucluster.api.client import ApiClient

_lock = threading.Lock()
#: (process id, address asked for) -> client. The process id keeps a forked child off its parent's sockets.
_clients: dict[tuple[int, str | None], ApiClient] = {}
_default_address: str | None = None
_simulated: weakref.WeakKeyDictionary[ApiClient, bool] = weakref.WeakKeyDictionary()


def use_address(address: str | None) -> None:
    """What `client()` connects to when no address is given; None = the environment decides (see client.connect)."""
    global _default_address
    _default_address = address or None


def default_address() -> str | None:
    return _default_address


def client(address: str | None = None) -> ApiClient:
    """The kernel's client. Raises Unavailable when no scheduler can be reached or started, VersionMismatch."""
    key = (os.getpid(), address or _default_address)
    with _lock:
        found = _clients.get(key)
    if found is not None:
        return found
    from gpucluster.api.client import connect

    made = connect(key[1])
    with _lock:
        found = _clients.setdefault(key, made)
    if found is not made:
        made.close()
    return found


def reachable(address: str | None = None) -> ApiClient | None:
    """A client of a scheduler that runs already, or None; starts nothing."""
    from gpucluster.api.client import connect
    from gpucluster.api.errors import GpuclusterError

    key = (os.getpid(), address or _default_address)
    with _lock:
        found = _clients.get(key)
    if found is not None:
        return found
    try:
        made = connect(key[1], start=False)
    except GpuclusterError:
        return None
    with _lock:
        found = _clients.setdefault(key, made)
    if found is not made:
        made.close()
    return found


def is_simulated(client: ApiClient) -> bool:
    """Whether any GPU of the client's cluster is declared rather than found. Asked once for each client."""
    found = _simulated.get(client)
    if found is None:
        found = _simulated[client] = client.hello().simulated
    return found


def disconnect() -> None:
    """Close this process's clients; the next call connects anew."""
    with _lock:
        mine = [key for key in _clients if key[0] == os.getpid()]
        closing = [_clients.pop(key) for key in mine]
    for each in closing:
        each.close()
