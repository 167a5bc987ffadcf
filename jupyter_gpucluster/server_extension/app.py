"""The extension application: traits, handlers, the kernel token, the scheduler's start."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.utils import url_path_join
from traitlets import Bool

from .handlers import ForwardHandler
from .kernel_token import give_to_kernels, kernel_token_settings, new_kernel_token
from .link import SchedulerLink
from .streams import StreamHub, StreamsHandler

API = "gpucluster/api/v1"


class GPUClusterExtension(ExtensionApp):
    """Serves `<base_url>/gpucluster/api/v1/…` and brings up the user's scheduler with Jupyter."""

    name = "jupyter_gpucluster"
    load_other_extensions = True

    start_scheduler = Bool(
        True,
        help="Start the user's embedded scheduler when none runs, with Jupyter and whenever a request needs it.",
    ).tag(config=True)

    def initialize_settings(self) -> None:
        assert self.serverapp is not None
        self._link = SchedulerLink(start_scheduler=self.start_scheduler, log=self.log)
        token = new_kernel_token()
        self.settings.update(kernel_token_settings(token, self.serverapp))
        if self._kernels_reach_this_server():
            give_to_kernels(self.serverapp.kernel_manager, self._local_api, token)

    def initialize_handlers(self) -> None:
        self._hub = StreamHub(self._link, self.log)
        self.handlers.extend(
            [
                (url_path_join(API, "streams", "ws"), StreamsHandler, {"hub": self._hub}),
                (url_path_join(API, "(.*)"), ForwardHandler, {"link": self._link}),
            ]
        )

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        if self.start_scheduler:
            self._bringing_up = asyncio.create_task(self._link.bring_up())

    async def stop_extension(self) -> None:
        await self._hub.close()
        await self._link.close()

    def _local_api(self) -> str:
        """Where a kernel on this machine reaches this API, with its version."""
        assert self.serverapp is not None
        local = urlsplit(self.serverapp.local_url)
        return urlunsplit((local.scheme, local.netloc, url_path_join(self.serverapp.base_url, API), "", ""))

    def _kernels_reach_this_server(self) -> bool:
        """False where a kernel cannot speak to this server simply: it then goes to the scheduler's socket itself."""
        app = self.serverapp
        assert app is not None
        if getattr(app, "sock", ""):
            self.log.info(
                "GPU cluster: the server listens on a Unix socket; kernels reach the scheduler directly"
            )
            return False
        if app.certfile:
            self.log.info("GPU cluster: the server speaks TLS; kernels reach the scheduler directly")
            return False
        gateway = getattr(app, "gateway_config", None)
        if gateway is not None and gateway.gateway_enabled:
            self.log.info(
                "GPU cluster: kernels run behind a gateway; they need GPUCLUSTER_ADDRESS to find a scheduler"
            )
            return False
        return True
