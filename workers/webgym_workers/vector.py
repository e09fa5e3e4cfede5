"""Many browsers behind one interface, each stepping at its own pace.

:meth:`WebVectorEnv.send` hands out actions and returns at once; :meth:`WebVectorEnv.recv` returns the environments that
have finished, as soon as there are enough. No browser waits for a slower one. ``reset`` and ``step`` are Gymnasium's
vector interface on top, which waits for all.
"""

from __future__ import annotations

import asyncio
import threading
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

from webgym.schema import Observation, Schema
from webgym_workers.browser.chromium import BrowserOptions
from webgym_workers.browser.faults import BrowserFault
from webgym_workers.browser.pool import BrowserPool
from webgym_workers.env import action_space, default_options, describe, observation_space, to_action
from webgym_workers.episode import Episode
from webgym_workers.seat import Seat
from webgym_workers.tasks.registry import create_task

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
        self._params = dict(params or {})
        create_task(task, self._params)  # fail now, not when the browsers run
        self.task = task
        self.schema = schema or Schema()
        self.num_envs = num_envs
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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: BrowserPool | None = None
        self._slots: list[_Slot] = []

    # --- each at its own pace -------------------------------------------------------------------------------------

    def send_reset(self, env_ids: Sequence[int], seed: int | None = None) -> None:
        """Begin a new episode in some environments.

        Args:
            env_ids: which; none may be busy.
            seed: seeds the page seeds of environment i with ``seed + i``, for this and the following episodes.
        """
        for i in env_ids:
            self._begin(i)
            if seed is not None:
                self._rngs[i] = np.random.default_rng(seed + i)
            self._submit(self._reset_one(i, self._draw(i)))

    def send(self, actions: NDArray[np.int64], env_ids: Sequence[int]) -> None:
        """Hand out actions (n, 3) to environments that are not busy, and return at once.

        Raises:
            gymnasium.error.ResetNeeded: an environment was never reset.
        """
        for action, i in zip(actions, env_ids, strict=True):
            state = self._states[i]
            if state is SlotState.NEW:
                raise gymnasium.error.ResetNeeded(f"environment {i} was never reset")
            self._begin(i)
            if state is SlotState.OVER:
                self._submit(self._reset_one(i, self._draw(i)))
            else:
                self._submit(self._step_one(i, np.array(action)))

    def recv(self, at_least: int = 1, timeout: float | None = None) -> Received:
        """Wait for results.

        Args:
            at_least: how many environments to wait for; all that have finished by then are returned.
            timeout: seconds to wait for each of them; None waits as long as it takes.

        Raises:
            TimeoutError: nothing came in time. What comes later is returned by the next call.
            BrowserError: a browser cannot be started.
            RuntimeError: fewer environments are busy than are waited for.
        """
        busy = sum(s is SlotState.BUSY for s in self._states)
        if at_least > busy:
            raise RuntimeError(f"waiting for {at_least} environments, but only {busy} were sent anything")
        results: list[_Result] = []
        while len(results) < at_least or not self._results.empty():
            try:
                result = self._results.get(timeout=timeout)
            except Empty:
                for earlier in results:
                    self._results.put(earlier)
                raise TimeoutError(f"no environment finished within {timeout:g} s") from None
            results.append(result)
        for result in results:
            over = result.terminated or result.truncated
            self._states[result.env_id] = SlotState.OVER if over else SlotState.RUNNING
        for result in results:
            if result.error is not None:
                self._states[result.env_id] = SlotState.NEW
                raise result.error
        return _gather(results)

    # --- all together ---------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment and wait for all."""
        for i in range(self.num_envs):
            own = seed[i] if isinstance(seed, list) else None if seed is None else seed + i
            if own is not None:
                self._rngs[i] = np.random.default_rng(own)
        self.send_reset(range(self.num_envs))
        received = _in_order(self.recv(self.num_envs))
        return received.observations, self._merged(received)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Do one action (num_envs, 3) in every environment and wait for all."""
        self.send(np.asarray(actions), range(self.num_envs))
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
        loop, self._loop = self._loop, None
        if loop is None:
            return
        asyncio.run_coroutine_threadsafe(self._end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None:
            self._thread.join()
        loop.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _merged(self, received: Received) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for i, info in enumerate(received.infos):
            infos = self._add_info(infos, info, i)
        return infos

    def _begin(self, env_id: int) -> None:
        if self._states[env_id] is SlotState.BUSY:
            raise RuntimeError(f"environment {env_id} is busy; recv() its result first")
        self._states[env_id] = SlotState.BUSY

    def _draw(self, env_id: int) -> int:
        return int(self._rngs[env_id].integers(_MOST_SEED))

    def _submit(self, work: Coroutine[Any, Any, _Result]) -> None:
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        future.add_done_callback(self._deliver)

    def _deliver(self, future: Future[_Result]) -> None:
        self._results.put(future.result())

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="browsers", daemon=True)
            self._thread.start()
            asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        return self._loop

    async def _open(self) -> None:
        self._pool = await BrowserPool(self._options, self.num_envs).__aenter__()
        self._slots = [
            _Slot(Seat(self._pool, i, self.schema, self._settle_budget)) for i in range(self.num_envs)
        ]

    async def _end(self) -> None:
        """Nothing may be left running in the loop when it stops."""
        if self._pool is not None:
            await self._pool.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _reset_one(self, i: int, page_seed: int) -> _Result:
        try:
            async with asyncio.timeout(self._deadline):
                for attempt in range(2):
                    try:
                        episode = await self._slots[i].take(self.task, self._params)
                        view = await episode.reset(page_seed, self._max_steps)
                        break
                    except BrowserFault as fault:
                        # A browser that died between two episodes is nobody's fault: once more, with a new one.
                        await self._slots[i].give_back(fault)
                        if attempt:
                            raise
        except Exception as error:
            return _Result(i, self.schema.empty(), error=error)
        info = describe(episode, success=False, invalid=None, settled=True)
        return _Result(i, view.observation, info=info)

    async def _step_one(self, i: int, action: NDArray[np.int64]) -> _Result:
        episode = self._slots[i].episode
        assert episode is not None
        try:
            async with asyncio.timeout(self._deadline):
                step = await episode.step(to_action(action))
        except (BrowserFault, TimeoutError) as fault:
            info = describe(episode, success=False, invalid=None, settled=False)
            info["fault"] = f"{type(fault).__name__}: {fault}"
            await self._slots[i].give_back(fault)
            return _Result(i, episode.view.observation, truncated=True, info=info)
        except Exception as error:
            return _Result(i, episode.view.observation, error=error)
        info = describe(episode, success=step.success, invalid=step.invalid, settled=step.settled)
        return _Result(i, step.view.observation, step.reward, step.terminated, step.truncated, info)


class _Slot:
    """A seat with its browser borrowed until something breaks."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._held: Any = None
        self.episode: Episode | None = None

    async def take(self, task: str, params: Mapping[str, Any]) -> Episode:
        if self.episode is None:
            self._held = self._seat.episode(task, params)
            self.episode = await self._held.__aenter__()
        return self.episode

    async def give_back(self, fault: BaseException) -> None:
        """Let the pool replace what broke."""
        held, self._held, self.episode = self._held, None, None
        if held is not None:
            broken = fault if isinstance(fault, BrowserFault) else BrowserFault(str(fault))
            try:
                await held.__aexit__(type(broken), broken, None)
            except BrowserFault:
                return  # the pool hands the fault on; it goes into the step's info


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
