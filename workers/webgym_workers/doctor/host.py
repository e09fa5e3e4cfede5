"""What kind of machine this is, as far as the way to mend something depends on it."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Host", "this_host"]

_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


@dataclass(frozen=True)
class Host:
    """A machine, told by how software is installed on it.

    Attributes:
        system: ``Linux``, ``Darwin`` (macOS) or ``Windows``, as :func:`platform.system` says.
        packages: The package manager of a Linux, where it is one that we know the names of packages for.
        ubuntu: Whether its Chromium package is the one that only leads to a snap.
        root: Whether we may install software.
        container: Whether this is a container: what is installed here goes with it.
    """

    system: str
    packages: Literal["apt", "dnf"] | None = None
    ubuntu: bool = False
    root: bool = False
    container: bool = False


def this_host(environ: Mapping[str, str] = os.environ) -> Host:
    """The machine that we run on."""
    system = platform.system()
    if system != "Linux":
        return Host(system, root=system != "Windows" and os.geteuid() == 0)
    packages: Literal["apt", "dnf"] | None = None
    if shutil.which("apt-get"):
        packages = "apt"
    elif shutil.which("dnf"):
        packages = "dnf"
    try:
        ubuntu = platform.freedesktop_os_release().get("ID") == "ubuntu"
    except OSError:
        ubuntu = False
    container = (
        "container" in environ
        or "KUBERNETES_SERVICE_HOST" in environ
        or any(Path(mark).exists() for mark in _CONTAINER_MARKS)
    )
    return Host(system, packages, ubuntu, os.geteuid() == 0, container)
