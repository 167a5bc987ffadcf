from __future__ import annotations

import os
import socket

import pytest

from gpucluster.worker.peers import peer_uid


def test_both_ends_of_a_unix_socket_know_each_other() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert peer_uid(ours) == peer_uid(theirs) == os.geteuid()


def test_connection_over_which_the_system_tells_nothing_is_an_error() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    ours.close()
    with theirs, pytest.raises(OSError):  # noqa: PT011
        peer_uid(ours)
