"""Several learners of one run as one: what they tell each other, by torch.distributed.

All of them go through the same rounds. Rank 0 leads: it alone knows how many updates are due and when training is over,
and its order opens each round. So nobody ever waits for something that nobody sends; and where one is gone or does not
answer in time, the wait of each other one ends in :class:`PeerLost`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from webgym.errors import RunError
from webgym_learner.place import Place

__all__ = ["Group", "Order", "OrderKind", "PeerLost", "Report", "Scales", "join"]

PATIENCE_SECONDS = 120.0
"""How long a learner waits for another in mid-training: the last resort, far beyond the longest checkpoint. One that
has ended is noticed at once, one that hangs is killed long before by whoever watches it."""
ARRIVAL_SECONDS = 900.0
"""How long the first to come waits for the last: pods may have to wait for a node and for their image."""
_CONNECT_SECONDS = 5.0
_LOOK_SECONDS = 0.2


# PyTorch documents both, but its type information does not export them.
_TCPStore: Any = dist.TCPStore  # type: ignore[attr-defined]
_PrefixStore: Any = dist.PrefixStore  # type: ignore[attr-defined]


class PeerLost(RunError):
    """Another learner of the run has ended or does not answer. The weights are those of before the update."""


class OrderKind(IntEnum):
    """What the others are to do."""

    GO = 0
    """A round: take in experience, then make the updates."""
    STOP = 1
    """Training is over."""
    DRAIN = 2
    """The run is asked to end."""


@dataclass(frozen=True)
class Order:
    """How rank 0 opens a round."""

    kind: OrderKind
    updates: int = 0
    """Updates to make; with none there is time to wait for experience."""
    version: int = 0
    """Newest version of the parameters, by which the staleness of experience is judged."""
    held: float = 0.0
    """Transitions that a learner holds on average."""


@dataclass(frozen=True)
class Report:
    """How each learner closes a round."""

    held: int = 0
    """Transitions in its replay."""
    added: int = 0
    """Transitions that it took in."""
    stale: int = 0
    """Transitions that it dropped for their age."""
    drained: int = 0
    """1 once it is asked to end."""


class Scales:
    """Scales of the parts of a batch, on their way."""

    def __init__(self, work: dist.Work | None, parts: list[torch.Tensor]) -> None:
        self._work = work
        self._parts = parts

    def largest(self) -> float:
        """Of all learners; waits for it.

        Raises:
            PeerLost: one of them does not send it.
        """
        with _peers():
            if self._work is not None:
                self._work.wait()
        return max(float(part) for part in self._parts)


class Group:
    """The learners that have met; made by :func:`join`.

    Every method is a collective: each learner of the group has to call it, in the same order. All raise
    :class:`PeerLost`.
    """

    def __init__(self, place: Place) -> None:
        self.rank = place.rank
        self.ranks = place.ranks

    def order(self, order: Order | None = None) -> Order:
        """Open a round: rank 0 gives the order, the others get it."""
        given = Order(OrderKind.STOP) if order is None else order
        message = torch.tensor(astuple(given), dtype=torch.float64)
        with _peers():
            dist.broadcast(message, 0)
        kind, updates, version, held = message.tolist()
        return Order(OrderKind(int(kind)), int(updates), int(version), held)

    def report(self, report: Report) -> list[Report]:
        """Close a round: what each learner reports, by rank."""
        mine = torch.tensor(astuple(report), dtype=torch.int64)
        return [Report(*row) for row in self._gather(mine).tolist()]

    def agree(self, number: int) -> bool:
        """Whether all learners bring the same number, of 63 bits."""
        numbers = self._gather(torch.tensor([number], dtype=torch.int64))
        return bool((numbers == numbers[0]).all())

    def share(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give everybody rank 0's values of tensors of one dtype, on one device, in one message."""
        if not tensors:
            return
        message = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        with _peers():
            dist.broadcast(message, 0)
        parts = torch.split(message, [tensor.numel() for tensor in tensors])
        with torch.no_grad():
            for tensor, part in zip(tensors, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def sum(self, vector: torch.Tensor) -> None:
        """Add up a vector over all learners, in place."""
        with _peers():
            dist.all_reduce(vector)

    def scales(self, scale: float) -> Scales:
        """Begin to tell each other the scales of the parts of a batch; what is on its way costs no time."""
        parts = [torch.zeros(1, dtype=torch.float64) for _ in range(self.ranks)]
        with _peers():
            work = dist.all_gather(parts, torch.tensor([scale], dtype=torch.float64), async_op=True)
        return Scales(work, parts)

    def _gather(self, mine: torch.Tensor) -> NDArray[np.int64]:
        parts = [torch.zeros_like(mine) for _ in range(self.ranks)]
        with _peers():
            dist.all_gather(parts, mine)
        return torch.stack(parts).numpy()


@contextlib.contextmanager
def join(
    place: Place,
    device: torch.device,
    look: Callable[[], bool],
    *,
    arrival: float = ARRIVAL_SECONDS,
    patience: float = PATIENCE_SECONDS,
) -> Iterator[Group]:
    """Meet the other learners; inside the block they are one.

    Args:
        place: this learner's among them.
        device: that it computes on.
        look: called while it waits for the others; true to wait no longer. May raise.
        arrival: seconds until all have to be there.
        patience: seconds that any later wait for another may take.

    Raises:
        PeerLost: somebody did not come, or is gone later.
    """
    deadline = time.monotonic() + arrival
    store = _store(place, look, deadline)
    names = [f"rank-{rank}" for rank in range(place.ranks)]
    with _peers():
        store.set(names[place.rank], "here")
        while not store.check(names):
            _wait(look, deadline)
        # Control messages are on the CPU whatever the gradients are on. Two learners on one GPU cannot use NCCL.
        own_gpu = device.type == "cuda" and torch.cuda.device_count() >= place.ranks_here
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if own_gpu else "gloo",
            store=_PrefixStore("group", store),
            rank=place.rank,
            world_size=place.ranks,
            timeout=timedelta(seconds=patience),
        )
    yield Group(place)
    # After a failure the others are not there to take leave of, and waiting for them would be in vain.
    dist.destroy_process_group()


def _store(place: Place, look: Callable[[], bool], deadline: float) -> Any:
    """Where the learners leave word for each other."""
    while True:
        try:
            store = _TCPStore(
                place.address,
                place.port,
                place.ranks,
                place.serves,
                timedelta(seconds=_CONNECT_SECONDS),
                wait_for_workers=False,
                master_listen_fd=place.listener,
            )
            break
        except dist.DistError as error:
            if place.serves:
                raise RunError(
                    f"the learners cannot meet at {place.address}:{place.port}: {_line(error)}"
                ) from None
            _wait(look, deadline)
    # What is said from now on may take as long as anything else.
    store.set_timeout(timedelta(seconds=PATIENCE_SECONDS))
    return store if place.attempt is None else _PrefixStore(f"attempt-{place.attempt}", store)


def _wait(look: Callable[[], bool], deadline: float) -> None:
    if look():
        raise PeerLost("asked to end before all learners had come")
    if time.monotonic() > deadline:
        raise PeerLost("not all learners of the run have come: see the others' logs")
    # torch's own waiting for a key, or for a server to listen, could be ended by nobody who asks this learner to end.
    time.sleep(_LOOK_SECONDS)


@contextlib.contextmanager
def _peers() -> Iterator[None]:
    """Failures of a collective as what they mean."""
    try:
        yield
    except RunError:
        raise
    except RuntimeError as error:
        raise PeerLost(
            f"another learner of the run has ended or does not answer ({_line(error)});"
            " training goes on from the last checkpoint once all are back"
        ) from None


def _line(error: Exception) -> str:
    """The first line of what torch says, without the place in its source."""
    text = str(error).strip().partition("\n")[0]
    return text.partition("] ")[2] or text if text.startswith("[") else text
