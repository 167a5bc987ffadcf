"""A scheduler for tests whose callers say who they are in a header: several users on a machine with one account."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tornado.httputil import HTTPServerRequest

from gpucluster.api import discovery
from gpucluster.api.config import load_config
from gpucluster.api.service import Service
from gpucluster.model.errors import Unauthenticated
from gpucluster.model.principals import Principal

HEADER = "X-Test-User"
GROUPS = {"ann": ("vision",), "bob": ("vision",)}


class HeaderAuthenticator:
    def principal_of(self, request: HTTPServerRequest) -> Principal:
        name = request.headers.get(HEADER)
        if not name:
            raise Unauthenticated("who are you?")
        return Principal(
            issuer="test", subject=name, name=name, groups=GROUPS.get(name, ()), is_admin=name == "admin"
        )


if __name__ == "__main__":
    config = load_config(Path(sys.argv[1]))
    service = Service(config, discovery.data_folder(), embedded=False, authenticator=HeaderAuthenticator())
    sys.exit(asyncio.run(service.run()))
