"""How to mend what is wrong, in one line for the platform at hand."""

from __future__ import annotations

from typing import Literal

from webgym_workers.doctor.host import Host

__all__ = [
    "UNIX_MODULES",
    "Software",
    "install",
    "missing_module",
    "more_memory",
    "more_open_files",
    "more_processes",
    "more_shared_memory",
    "sandbox",
]

Software = Literal["chromium", "xvfb", "latin", "cjk", "emoji"]

_PACKAGES: dict[str, dict[Software, str]] = {
    "apt": {
        "chromium": "chromium",
        "xvfb": "xvfb",
        "latin": "fonts-liberation",
        "cjk": "fonts-noto-cjk",
        "emoji": "fonts-noto-color-emoji",
    },
    "dnf": {
        "chromium": "chromium",
        "xvfb": "xorg-x11-server-Xvfb",
        "latin": "liberation-fonts",
        "cjk": "google-noto-sans-cjk-fonts",
        "emoji": "google-noto-color-emoji-fonts",
    },
}
_PLAIN: dict[Software, str] = {
    "chromium": "Chromium",
    "xvfb": "Xvfb",
    "latin": "Liberation fonts",
    "cjk": "Noto CJK fonts",
    "emoji": "the Noto Color Emoji font",
}
UNIX_MODULES = frozenset({"fcntl", "resource", "pwd", "termios"})
"""Of Python's own, but not on Windows."""
WSL = "run WebGym in WSL 2 (`wsl --install`); its browser engine needs Linux or macOS"


def install(host: Host, *software: Software) -> str:
    """How to install some software."""
    if host.system == "Windows":
        return WSL
    if software == ("chromium",) and _playwright_is_best(host):
        return "playwright install chromium, or set WEBGYM_CHROMIUM or browser.executable to a program"
    if host.system == "Darwin":
        return f"install {' and '.join(_PLAIN[name] for name in software)}"
    if "chromium" in software and host.ubuntu:
        # The package of that name only leads to a snap, which containers cannot run.
        rest = tuple(name for name in software if name != "chromium")
        command = "playwright install --with-deps chromium"
        return f"{command}; {install(host, *rest)}" if rest else _as_root(host, command)
    if host.packages is None:
        return f"install {' and '.join(_PLAIN[name] for name in software)} with your package manager"
    names = " ".join(_PACKAGES[host.packages][name] for name in software)
    command = f"dnf install -y {names}"
    if host.packages == "apt":
        # Images come without the lists of packages.
        command = f"{'apt-get update && ' if host.container else ''}apt-get install -y {names}"
    return _as_root(host, command)


def _playwright_is_best(host: Host) -> bool:
    return host.system == "Darwin" or (not host.container and not host.root) or host.packages is None


def _as_root(host: Host, command: str) -> str:
    if host.container:
        return f"in the image: RUN {command}"
    return command if host.root else f"sudo {command}"


def sandbox(host: Host, obstacle: str, switch: str | None) -> str:
    """How to get Chromium's sandbox to work.

    Args:
        host: The machine.
        obstacle: Why it does not.
        switch: The kernel's setting that forbids user namespaces, such as ``kernel.unprivileged_userns_clone=1`` with
            the value that allows them; None when there is none.
    """
    if "root" in obstacle:
        way = "by a USER line in the image" if host.container else "such as `useradd -m webgym; su webgym`"
        return f"run as another user than root, {way}"
    if host.container:
        return "docker run --security-opt seccomp=FILE with a profile that allows clone and unshare of user namespaces"
    if switch:
        return f"{'' if host.root else 'sudo '}sysctl -w {switch}"
    return "allow user namespaces, or make chrome-sandbox beside the program set-uid root"


def more_shared_memory(host: Host, need_bytes: int) -> str:
    """How to get a larger ``/dev/shm``."""
    size = _round_size(need_bytes)
    if host.container:
        return f"docker run --shm-size={size}; on Kubernetes an emptyDir with medium: Memory at /dev/shm"
    return f"{'' if host.root else 'sudo '}mount -o remount,size={size} /dev/shm"


def more_open_files(host: Host, need: int, hard: int | None) -> str:
    """How to be allowed more open files; ``hard`` is as far as this user may go, None is: any number."""
    if hard is None or hard >= need or host.root:
        return f"ulimit -n {need}, in the shell that starts webgym"
    if host.container:
        return f"docker run --ulimit nofile={need}"
    if host.system == "Darwin":
        return f"sudo launchctl limit maxfiles {need} unlimited, then log in again"
    return f"a line `* - nofile {need}` in /etc/security/limits.conf, then log in again"


def more_processes(host: Host, need: int, by: Literal["ulimit", "cgroup"]) -> str:
    """How to be allowed more processes, by whatever bounds them."""
    if by == "ulimit":
        return (
            f"ulimit -u {need}, in the shell that starts webgym, or run fewer browsers (workers.maxBrowsers)"
        )
    if host.container:
        return f"docker run --pids-limit={need}; on Kubernetes the kubelet's podPidsLimit"
    return f"sudo systemctl set-property user-$UID.slice TasksMax={need}"


def more_memory(host: Host, browsers: int) -> str:
    """How to get along with the memory there is, which is enough for some ``browsers``."""
    fewer = f"workers.maxBrowsers: {max(1, browsers)}"
    return (
        f"{fewer}, or a larger memory limit of the container"
        if host.container
        else f"{fewer}, or more memory"
    )


def missing_module(host: Host, name: str) -> str:
    """How to get a Python module."""
    if host.system == "Windows" and name in UNIX_MODULES:
        return WSL
    return "pip install 'webgym-platform[worker,learner]'"


def _round_size(size: int) -> str:
    mebibytes = -(-size // 2**20)
    return f"{max(256, -(-mebibytes // 256) * 256)}m"
