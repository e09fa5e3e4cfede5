"""Following a run until something is so, by the server's own news of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from webgym.errors import RunError
from webgym.printable import printable
from webgym.spec import KIND
from webgym_operator.client.access import Cluster
from webgym_operator.client.refusal import ClusterError
from webgym_operator.run import Object

__all__ = ["ProgressLine", "follow"]

_PATIENCE = 120.0
"""Seconds for which the API server may be away: its upgrade takes about that long."""
_WATCH_SECONDS = 60.0


def follow(
    cluster: Cluster,
    name: str,
    until: Callable[[Object], bool],
    tell: Callable[[Object], None],
    *,
    uid: str,
    patience: float = _PATIENCE,
) -> Object:
    """Wait for a run; returns it as it is then.

    Args:
        cluster: where it is.
        name: of the run.
        until: whether it is as it should be.
        tell: is given the run whenever there is news of it.
        uid: of the run; another of the same name is not it.
        patience: seconds for which the API server may be away.

    Raises:
        RunError: the run was deleted.
        ClusterError: the server refuses, or has been away for longer than that.
    """
    last_answer = time.monotonic()
    pause = 0.5
    while True:
        try:
            run = cluster.get(KIND, name)
            last_answer, pause = time.monotonic(), 0.5
            version = _version(run)
            while True:
                if run["metadata"]["uid"] != uid:
                    raise RunError(f"run {name} was deleted, and another of that name made")
                tell(run)
                if until(run):
                    return run
                for type_, changed in cluster.watch(KIND, version, seconds=_WATCH_SECONDS):
                    last_answer = time.monotonic()
                    version = _version(changed)
                    if changed["metadata"]["name"] != name:
                        continue
                    if type_ == "DELETED":
                        raise RunError(f"run {name} was deleted")
                    run = changed
                    break
        except ClusterError as error:
            if error.status == 404 and error.reason != "NoDefinition":
                raise RunError(f"run {name} was deleted") from None
            if error.status != 410 and not _passing(error):
                raise
            if time.monotonic() - last_answer > patience:
                raise
            time.sleep(pause)  # nobody would tell when the server is back
            pause = min(pause * 2, 5.0)


def _passing(error: ClusterError) -> bool:
    return error.status == 0 or error.status == 429 or error.status >= 500


def _version(body: Object) -> str:
    return str(body["metadata"]["resourceVersion"])


class ProgressLine:
    """One line on stderr, kept up to date on a terminal; elsewhere a line for each change worth one.

    Args:
        quiet: show nothing.
        every: least seconds between two lines where they do not replace each other.
    """

    def __init__(self, *, quiet: bool = False, every: float = 10.0) -> None:
        self._quiet = quiet
        self._every = every
        self._terminal = sys.stderr.isatty()
        self._shown = ""
        self._shown_at = float("-inf")
        self._key: object = None

    def show(self, text: str, key: object = None) -> None:
        """Show a line; one of another key than the last is shown at once."""
        text = printable(text)
        if self._quiet or text == self._shown:
            return
        now = time.monotonic()
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{text[: _columns() - 1]}")
            sys.stderr.flush()
        elif key != self._key or now - self._shown_at >= self._every:
            sys.stderr.write(f"{text}\n")
        else:
            return
        self._shown, self._shown_at, self._key = text, now, key

    def close(self) -> None:
        """Leave the terminal on a line of its own."""
        if self._terminal and self._shown and not self._quiet:
            sys.stderr.write("\n")
            sys.stderr.flush()
        self._shown = ""


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns
