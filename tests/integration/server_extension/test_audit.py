"""Jupyter's own audit: with `allow_unauthenticated_access=False` it warns of every endpoint without authentication."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

AUDIT = """
import warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", category=DeprecationWarning)
from jupyter_server.serverapp import ServerApp, JupyterServerAuthWarning
from traitlets.config import Config
config = Config()
config.ServerApp.jpserver_extensions = {"jupyter_gpucluster": True}
config.ServerApp.reraise_server_extension_failures = True
config.GPUClusterExtension.start_scheduler = False
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    app = ServerApp.instance(config=config, allow_unauthenticated_access=False, allow_root=True, open_browser=False)
    app.initialize(argv=[], find_extensions=False)
def names(router):
    for rule in router.rules:
        yield from names(rule.target) if hasattr(rule.target, "rules") else [getattr(rule.target, "__name__", "")]
found = set(names(app.web_app.default_router))
assert {"ForwardHandler", "StreamsHandler"} <= found, found
unprotected = [str(warning.message) for warning in seen if issubclass(warning.category, JupyterServerAuthWarning)]
assert not unprotected, unprotected
print("audited")
"""


def test_jupyters_audit_finds_no_endpoint_without_authentication() -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = {
            **os.environ,
            "JUPYTER_CONFIG_DIR": folder,
            "JUPYTER_DATA_DIR": folder,
            "JUPYTER_RUNTIME_DIR": folder,
        }
        run = subprocess.run(
            [sys.executable, "-c", AUDIT], env=env, capture_output=True, text=True, timeout=120, cwd="/"
        )
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.strip().endswith("audited")
