"""Many browsers behind one interface, each stepping at its own pace.

:meth:`WebVectorEnv.send` hands out actions and returns at once; :meth:`WebVectorEnv.recv` returns the environments that
have finished, as soon as there are enough. No browser waits for a slower one. ``reset`` and ``step`` are Gymnasium's
vector interface on top, which waits for all.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from queue import Empty, Queue
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from webgym.schema import Action, Observation, Schema
from webgym_workers.browser.chromium import BrowserOptions
from webgym_workers.browser.faults import BrowserFault
from webgym_workers.browser.pool import BrowserPool
from webgym_workers.env import action_space, default_options, describe, observation_space, to_action
from webgym_workers.loop_thread import LoopThread
from webgym_workers.reach import egress_proxy
from webgym_workers.seat import Seat
from webgym_workers.tasks.registry import create_task
from webgym_workers.tenant import Tenant

__all__ = ["Received", "SlotState", "WebVectorEnv"]

T = TypeVar("T")

_MOST_SEED = 1 << 30


class SlotState(Enum):
    """What one environment is doing."""

    NEW = "new"
    RUNNING = "running"
    """Has an observation to act on."""
    BUSY = "busy"
    """Was sent an action or a reset; :meth:`WebVectorEnv.recv` will bring the result."""
    OVER = "over"
    """Its episode has ended; the next action sent resets it instead."""


@dataclass(frozen=True)
class Received:
    """Results of some environments, rows in the order of ``env_ids``."""

    env_ids: NDArray[np.int64]
    observations: Observation
    """The schema's fields, (n, ...)."""
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    infos: tuple[dict[str, Any], ...]


@dataclass
class _Result:
    env_id: int
    observation: Observation
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] | None = None
    error: BaseException | None = None


class WebVectorEnv(VectorEnv[Any, Any, Any]):
    """Several browsers with one task.

    An environment whose episode ended starts the next one when it is sent an action (``AutoresetMode.NEXT_STEP``);
    that action is not carried out.

    Args:
        task: a task's name, or ``module:Class``.
        num_envs: how many browsers.
        params: parameters of the task.
        schema: sizes of the observation.
        max_steps: steps until an episode is truncated; None for the task's own.
        browser: how browsers are started; by default as for :class:`~webgym_workers.env.WebEnv`.
        settle_budget: seconds that a page may take to come to rest after an action.
        deadline: seconds that one step or reset may take in all; beyond it the episode is truncated as a fault.

    Raises:
        TaskError: there is no such task.
        ValueError: fewer environments than one.
    """

    def __init__(
        self,
        task: str,
        num_envs: int,
        *,
        params: Mapping[str, Any] | None = None,
        schema: Schema | None = None,
        max_steps: int | None = None,
        browser: BrowserOptions | None = None,
        settle_budget: float = 1.0,
        deadline: float = 60.0,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be 1 at least, not {num_envs}")
        self._params = dict(params or {})
        create_task(task, self._params)  # fail now, not when the browsers run
        self.task = task
        self.schema = schema or Schema()
        self.num_envs = num_envs
        self._all = range(num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = observation_space(self.schema)
        self.single_action_space = action_space(self.schema)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._max_steps = max_steps
        self._options = browser or default_options(self.schema)
        self._settle_budget = settle_budget
        self._deadline = deadline
        self._states = [SlotState.NEW] * num_envs
        self._rngs = [np.random.default_rng() for _ in range(num_envs)]
        self._results: Queue[_Result] = Queue()
        self._loop: LoopThread | None = None
        self._pool: BrowserPool | None = None
        self._tenants: list[Tenant] = []

    # --- each at its own pace -------------------------------------------------------------------------------------

    def send_reset(self, env_ids: Sequence[int], seed: int | None = None) -> None:
        """Begin a new episode in some environments.

        Args:
            env_ids: which; none may be busy.
            seed: seeds the page seeds of environment i with ``seed + i``, for this and the following episodes.

        Raises:
            RuntimeError: one is busy; nothing was begun.
            gymnasium.error.ClosedEnvironmentError: :meth:`close` was called.
        """
        self._check_free(env_ids)
        for i in env_ids:
            if seed is not None:
                self._rngs[i] = np.random.default_rng(seed + i)
            self._submit(i, self._reset_one(i, self._draw(i)))

    def send(self, actions: NDArray[np.int64], env_ids: Sequence[int]) -> None:
        """Hand out actions (n, 3) to environments that are not busy, and return at once.

        Whatever it raises, nothing was begun.

        Raises:
            gymnasium.error.ResetNeeded: an environment was never reset.
            gymnasium.error.InvalidAction: an action is no member of the action space.
            RuntimeError: an environment is busy.
            gymnasium.error.ClosedEnvironmentError: :meth:`close` was called.
        """
        self._check_free(env_ids)
        if len(actions) != len(env_ids):
            raise ValueError(f"{len(actions)} actions for {len(env_ids)} environments")
        chosen = [to_action(action, self.schema) for action in actions]
        for i in env_ids:
            if self._states[i] is SlotState.NEW:
                raise gymnasium.error.ResetNeeded(f"environment {i} was never reset")
        for action, i in zip(chosen, env_ids, strict=True):
            over = self._states[i] is SlotState.OVER
            self._submit(i, self._reset_one(i, self._draw(i)) if over else self._step_one(i, action))

    def recv(self, at_least: int = 1, timeout: float | None = None) -> Received:
        """Wait for results.

        Args:
            at_least: how many environments to wait for; all that have finished by then are returned.
            timeout: seconds to wait for each of them; None waits as long as it takes.

        Raises:
            TimeoutError: not enough came in time. What has come, and what comes later, is returned by the next call.
            BrowserError: a browser cannot be started. Its environment has to be reset; results of others are returned
                by the next call.
            TaskError: the task's own code raised; as above.
            RuntimeError: fewer environments are busy than are waited for.
        """
        if at_least < 1:
            raise ValueError(f"at_least must be 1 at least, not {at_least}")
        busy = sum(s is SlotState.BUSY for s in self._states)
        if at_least > busy:
            raise RuntimeError(f"waiting for {at_least} environments, but only {busy} were sent anything")
        results: list[_Result] = []
        while len(results) < at_least or not self._results.empty():
            try:
                result = self._results.get(timeout=timeout)
            except Empty:
                self._put_back(results)
                raise TimeoutError(f"no environment finished within {timeout:g} s") from None
            if result.error is not None:
                self._put_back(results)
                self._states[result.env_id] = SlotState.NEW
                raise result.error
            results.append(result)
        for result in results:
            over = result.terminated or result.truncated
            self._states[result.env_id] = SlotState.OVER if over else SlotState.RUNNING
        return _gather(results)

    # --- all together ---------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment and wait for all; environment i is seeded with ``seed + i``."""
        seeds = seed if isinstance(seed, list) else [None if seed is None else seed + i for i in self._all]
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        self._check_free(self._all)
        for i, own in enumerate(seeds):
            if own is not None:
                self._rngs[i] = np.random.default_rng(own)
        self.send_reset(self._all)
        received = _in_order(self.recv(self.num_envs))
        return received.observations, self._merged(received)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Do one action (num_envs, 3) in every environment and wait for all."""
        self.send(np.asarray(actions), self._all)
        received = _in_order(self.recv(self.num_envs))
        return (
            received.observations,
            received.rewards,
            received.terminations,
            received.truncations,
            self._merged(received),
        )

    def close_extras(self, **kwargs: Any) -> None:
        """End all browsers and the thread that drives them."""
        loop, self._loop, self._pool = self._loop, None, None
        if loop is not None:
            self._forgotten.detach()
            loop.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _merged(self, received: Received) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for i, info in enumerate(received.infos):
            infos = self._add_info(infos, info, i)
        return infos

    def _check_free(self, env_ids: Sequence[int]) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError("the environments are closed")
        if len(set(env_ids)) != len(env_ids):
            raise ValueError(f"an environment is named twice: {list(env_ids)}")
        for i in env_ids:
            if i not in self._all:
                raise ValueError(f"there is no environment {i}, only 0 to {self.num_envs - 1}")
            if self._states[i] is SlotState.BUSY:
                raise RuntimeError(f"environment {i} is busy; recv() its result first")

    def _put_back(self, results: list[_Result]) -> None:
        for result in results:
            self._results.put(result)

    def _draw(self, env_id: int) -> int:
        return int(self._rngs[env_id].integers(_MOST_SEED))

    def _submit(self, env_id: int, work: Coroutine[Any, Any, _Result]) -> None:
        if self._loop is None:
            self._loop = LoopThread("browsers")
            self._forgotten = weakref.finalize(self, self._loop.abandon)
            self._forgotten.atexit = False  # the loop has its own way to end with Python
            self._loop.call(self._open())
        self._states[env_id] = SlotState.BUSY
        self._loop.submit(work).add_done_callback(self._deliver)

    def _deliver(self, future: Future[_Result]) -> None:
        # What was still running when the environments were closed is nobody's any more.
        if not future.cancelled():
            self._results.put(future.result())

    async def _open(self) -> None:
        assert self._loop is not None
        egress = egress_proxy(self._options, [create_task(self.task, self._params)])
        self._pool = await self._loop.enter(BrowserPool(self._options, self.num_envs, egress=egress))
        seats = [Seat(self._pool, i, self.schema, self._settle_budget) for i in self._all]
        self._tenants = [await self._loop.enter(Tenant(seat)) for seat in seats]

    async def _reset_one(self, i: int, page_seed: int) -> _Result:
        try:
            async with asyncio.timeout(self._deadline):
                for attempt in range(2):
                    try:
                        episode = await self._tenants[i].take(self.task, self._params)
                        view = await episode.reset(page_seed, self._max_steps)
                        break
                    except BrowserFault as fault:
                        # A browser that died between two episodes is nobody's fault: once more, with a new one.
                        await self._tenants[i].give_back(fault)
                        if attempt:
                            raise
        except Exception as error:
            await self._tenants[i].give_back(error)
            return _Result(i, self.schema.empty(), error=error)
        info = describe(episode, success=False, invalid=None, settled=True)
        return _Result(i, view.observation, info=info)

    async def _step_one(self, i: int, action: Action) -> _Result:
        episode = self._tenants[i].episode
        assert episode is not None
        try:
            async with asyncio.timeout(self._deadline):
                step = await episode.step(action)
        except (BrowserFault, TimeoutError) as fault:
            info = describe(episode, success=False, invalid=None, settled=False)
            info["fault"] = f"{type(fault).__name__}: {fault}"
            await self._tenants[i].give_back(fault)
            return _Result(i, episode.view.observation, truncated=True, info=info)
        except Exception as error:
            await self._tenants[i].give_back(error)
            return _Result(i, episode.view.observation, error=error)
        info = describe(episode, success=step.success, invalid=step.invalid, settled=step.settled)
        return _Result(i, step.view.observation, step.reward, step.terminated, step.truncated, info)


def _gather(results: list[_Result]) -> Received:
    return Received(
        env_ids=np.array([r.env_id for r in results], dtype=np.int64),
        observations={
            name: np.stack([r.observation[name] for r in results]) for name in results[0].observation
        },
        rewards=np.array([r.reward for r in results], dtype=np.float64),
        terminations=np.array([r.terminated for r in results], dtype=np.bool_),
        truncations=np.array([r.truncated for r in results], dtype=np.bool_),
        infos=tuple(r.info or {} for r in results),
    )


def _in_order(received: Received) -> Received:
    order = np.argsort(received.env_ids)
    return Received(
        received.env_ids[order],
        {name: array[order] for name, array in received.observations.items()},
        received.rewards[order],
        received.terminations[order],
        received.truncations[order],
        tuple(received.infos[i] for i in order),
    )
