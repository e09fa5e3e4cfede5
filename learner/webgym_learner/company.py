"""A run's learners from rank 0's side: starts those that nobody else starts, and says what became of them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from webgym.deathsig import die_with_parent
from webgym.errors import BrokerError, ExitCode, UsageError, WebGymError
from webgym.process import LIFELINE_VARIABLE
from webgym.program import ProgramContext
from webgym.restart import describe_exit
from webgym_learner.dqn import DivergedError
from webgym_learner.group import Group, PeerLost, join
from webgym_learner.place import Place

__all__ = ["LocalLearners", "lead"]

_GRACE_SECONDS = 10.0
_NOTICE_SECONDS = 2.0
"""Between the end of a connection and the end of the process that had it."""


@contextlib.contextmanager
def lead(
    context: ProgramContext, place: Place | None, device: torch.device, drained: Callable[[], bool]
) -> Iterator[Group | None]:
    """Inside the block this learner leads the others of its run; None if it is the only one.

    Where no variables say who starts the others (pods, torchrun), they are processes of this one.

    Raises:
        PeerLost: another learner is gone.
        WebGymError: what a learner of this machine ended with, where it said so.
    """
    ranks = context.manifest.spec.learner.replicas
    if ranks == 1:
        yield None
        return
    if place is not None:
        with join(place, device, drained) as group:
            yield group
        return
    with LocalLearners(context, ranks) as local:

        def look() -> bool:
            local.check()
            return drained()

        try:
            with join(local.place, device, look) as group:
                yield group
        except PeerLost:
            local.check(_NOTICE_SECONDS)
            raise


class LocalLearners:
    """Learners 1 and up of a run on this machine, which end with this process however it ends.

    Args:
        context: of rank 0.
        ranks: how many learners there are with it.
    """

    def __init__(self, context: ProgramContext, ranks: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._children: list[tuple[ProgramContext, subprocess.Popen[bytes]]] = []
        self._context = context
        self._ranks = ranks
        port = int(self._listener.getsockname()[1])
        # The meeting point takes the descriptor for its own, and closes it.
        listener = os.dup(self._listener.fileno())
        self.place = Place(0, ranks, "127.0.0.1", port, 0, ranks, listener=listener)
        """Of rank 0."""
        if sys.platform == "linux":
            # Nobody beyond this machine has to do with it.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

    def __enter__(self) -> LocalLearners:
        for rank in range(1, self._ranks):
            self._children.append(self._start(rank))
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.close()
        for _, child in self._children:
            child.terminate()
        for _, child in self._children:
            try:
                child.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if child.stdin is not None:
                child.stdin.close()

    def check(self, wait: float = 0.0) -> None:
        """Raise what a learner ended with, if one has ended.

        Args:
            wait: seconds to wait for that at most.

        Raises:
            WebGymError: of the kind that its exit code names.
        """
        for context, child in self._children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(wait) if wait else child.poll()
                if code is not None:
                    raise _ending(context, code)

    def _start(self, rank: int) -> tuple[ProgramContext, subprocess.Popen[bytes]]:
        own = self._context
        word = own.termination_log
        name = f"learner-{rank}"
        context = replace(
            own,
            id=name,
            termination_log=None if word is None else word.with_name(f"{name}.last-word"),
            metrics_port=0,
        )
        environ = {
            **os.environ,
            **context.environ(),
            LIFELINE_VARIABLE: str(os.getpid()),
            "RANK": str(rank),
            "WORLD_SIZE": str(self._ranks),
            "MASTER_ADDR": self.place.address,
            "MASTER_PORT": str(self.place.port),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(self._ranks),
        }
        environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
        if context.termination_log is not None:
            context.termination_log.unlink(missing_ok=True)
        with _log_of(own.out, name).open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "webgym", "learner"],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(os.getpid()),
            )
        return context, child


def _log_of(out: Path, name: str) -> Path:
    folder = out / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.log"


def _ending(context: ProgramContext, code: int) -> WebGymError:
    word = ""
    if context.termination_log is not None:
        with contextlib.suppress(OSError):
            word = context.termination_log.read_text(errors="replace").strip().partition("\n")[0]
    message = f"{context.id} ended: {word or describe_exit(code)}; see {_log_of(context.out, context.id)}"
    kinds: dict[int, type[WebGymError]] = {
        ExitCode.USAGE: UsageError,
        ExitCode.BROKER_LOST: BrokerError,
        ExitCode.DIVERGED: DivergedError,
    }
    return kinds.get(code, PeerLost)(message)
