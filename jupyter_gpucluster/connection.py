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
    return known(address) or _connect(address)


def known(address: str | None = None) -> ApiClient | None:
    """The client that this process has already, or None."""
    with _lock:
        return _clients.get((os.getpid(), address or _default_address))


def _connect(address: str | None) -> ApiClient:
    from gpucluster.api.client import connect

    key = (os.getpid(), address or _default_address)
    made = connect(key[1])
    with _lock:
        found = _clients.setdefault(key, made)
    if found is not made:  # another thread was quicker
        made.close()
    return found


def reachable(address: str | None = None) -> ApiClient | None:
    """The client of a scheduler that runs already, or None; starts nothing. For hints only: it never says why not."""
    from gpucluster.api import client, discovery
    from gpucluster.api.errors import GpuclusterError

    elsewhere = (
        address
        or _default_address
        or any(os.environ.get(name) for name in (discovery.ENV_ADDRESS, client.ENV_JUPYTER_URL))
    )
    try:
        if known(address) is None and not elsewhere and discovery.find_scheduler() is None:
            return None
        return known(address) or _connect(address)
    except GpuclusterError:
        return None


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
