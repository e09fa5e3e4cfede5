"""WebGym: reinforcement learning for visual web agents, on many real browsers at once.

This package is what all parts share: the run spec, the wire, Redis, telemetry and the command line. It imports
no torch, no browser and no Kubernetes client, so that every pod and every tool can afford it.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("webgym-platform")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
