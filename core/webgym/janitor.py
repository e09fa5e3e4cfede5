"""A small shell that outlives us, and removes our temporary folders when we are gone, however we end."""

from __future__ import annotations

import subprocess

__all__ = ["start_janitor"]

# $1 is where the names of our folders begin. The kernel closes our stdin when the parent ends; we wait for that alone.
# Processes killed at the same moment may still write into a folder while it is removed, hence a few rounds.
_JANITOR = """
trap '' INT TERM HUP
while read -r _; do :; done
for round in 1 2 3 4 5 6 7 8 9 10; do
  set -- "$1" "$1"*
  [ -e "$2" ] || exit 0
  rm -rf -- "$1"* 2>/dev/null
  set -- "$1"
  sleep 0.2
done
"""


def start_janitor(prefix: str) -> subprocess.Popen[bytes]:
    """Have the folders whose paths begin with ``prefix`` removed when this process ends or closes the shell's stdin.

    Raises:
        OSError: there is no shell.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", _JANITOR, "webgym-janitor", prefix],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
