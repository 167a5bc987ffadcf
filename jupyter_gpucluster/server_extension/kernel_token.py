"""The credential of kernels (DESIGN section 4, *Kernel token*).

Made anew when the server starts, given to each kernel in its environment, good for this API only. A request that bears
it is decided here, before the server's identity provider is asked, and is the only kind for which XSRF is waived: it
carries its credential in a header, which no foreign page can set.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Callable
from typing import Any

from jupyter_server.auth import IdentityProvider, User
from jupyter_server.auth.authorizer import AllowAllAuthorizer
from jupyter_server.base.handlers import JupyterHandler

URL_VARIABLE = "JUPYTER_GPUCLUSTER_URL"
TOKEN_VARIABLE = "JUPYTER_GPUCLUSTER_TOKEN"
_SCHEME = "token "


def new_kernel_token() -> str:
    return "gpk-" + secrets.token_urlsafe(32)


class KernelIdentityProvider(IdentityProvider):
    """Vouches for requests whose kernel token was found right already."""

    def get_user(self, handler: Any) -> User:
        return User(username="kernel", name="kernel", display_name="kernel")

    def is_token_authenticated(self, handler: Any) -> bool:
        return True


class KernelTokenMixin(JupyterHandler):
    """For handlers of this API: a right kernel token is enough; every other request goes the server's usual way."""

    @property
    def bears_kernel_token(self) -> bool:
        expected: str | None = self.settings.get("gpucluster_kernel_token")
        header = self.request.headers.get("Authorization", "")
        if not expected or not header.startswith(_SCHEME):
            return False
        return hmac.compare_digest(header[len(_SCHEME) :].encode(), expected.encode())

    @property
    def identity_provider(self) -> Any:
        if self.bears_kernel_token:
            return self.settings["gpucluster_kernel_identity"]
        return super().identity_provider

    @property
    def authorizer(self) -> Any:
        if self.bears_kernel_token:
            return self.settings["gpucluster_kernel_authorizer"]
        return super().authorizer


def kernel_token_settings(token: str, parent: Any) -> dict[str, Any]:
    """What KernelTokenMixin finds in the web application's settings."""
    return {
        "gpucluster_kernel_token": token,
        "gpucluster_kernel_identity": KernelIdentityProvider(parent=parent),
        "gpucluster_kernel_authorizer": AllowAllAuthorizer(
            parent=parent, identity_provider=parent.identity_provider
        ),
    }


def give_to_kernels(kernel_manager: Any, url: Callable[[], str], token: str) -> None:
    """Have every kernel that this manager starts find address and token in its environment.

    Only kernels get them: they are not put into the server's own environment, which terminals and language servers see.
    """
    start_kernel = kernel_manager.start_kernel

    async def start_with_token(*args: Any, **kwargs: Any) -> Any:
        env = dict(kwargs.get("env") or os.environ)
        env[URL_VARIABLE] = url()
        env[TOKEN_VARIABLE] = token
        kwargs["env"] = env
        return await start_kernel(*args, **kwargs)

    kernel_manager.start_kernel = start_with_token
