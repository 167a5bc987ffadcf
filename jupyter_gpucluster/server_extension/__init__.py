"""The Jupyter server extension: this API below the server's base URL, forwarded to the scheduler."""

from .app import GPUClusterExtension

__all__ = ["GPUClusterExtension"]
