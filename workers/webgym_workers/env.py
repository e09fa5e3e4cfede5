"""The environment: one browser behind Gymnasium's interface.

>>> import gymnasium, webgym_workers
>>> env = gymnasium.make("webgym/miniwob.click-test-v1")  # doctest: +SKIP

Observations are copies: keeping one is safe. Wall-clock times stay out of ``info``, so the same seed and actions give
the same trajectory wherever the page itself allows it.
"""

from __future__ import annotations

import io
import weakref
from collections.abc import Coroutine, Mapping
from typing import Any, ClassVar, TypeVar, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from PIL import Image

from webgym.schema import Action, ActionKind, Observation, Schema
from webgym_workers.browser.chromium import BrowserOptions
from webgym_workers.browser.faults import BrowserFault
from webgym_workers.browser.pool import BrowserPool
from webgym_workers.episode import Episode
from webgym_workers.loop_thread import LoopThread
from webgym_workers.reach import egress_proxy
from webgym_workers.seat import Seat
from webgym_workers.tasks.registry import create_task
from webgym_workers.tenant import Tenant

__all__ = [
    "ActionArray",
    "WebEnv",
    "action_space",
    "default_options",
    "describe",
    "observation_space",
    "to_action",
]

ActionArray = NDArray[np.int64]
"""(kind, node, text), a member of the action space."""

T = TypeVar("T")

_MOST_SEED = 1 << 30
"""Page seeds drawn without a seed of the caller's are those that training uses."""


def observation_space(schema: Schema) -> spaces.Dict:
    """The space of :meth:`webgym.schema.Schema.fields`."""
    boxes: dict[str, spaces.Space[Any]] = {}
    for name, spec in schema.fields().items():
        high = 255 if name == "frame" else 1
        boxes[name] = spaces.Box(0, high, spec.shape, spec.dtype.type)
    return spaces.Dict(boxes)


def action_space(schema: Schema) -> spaces.MultiDiscrete:
    """MultiDiscrete (kind, node, text)."""
    return spaces.MultiDiscrete([len(ActionKind), schema.nodes, schema.texts])


def to_action(action: ActionArray, schema: Schema) -> Action:
    """A member of the action space as an :class:`~webgym.schema.Action`.

    Raises:
        gymnasium.error.InvalidAction: it is no member.
    """
    sizes = (len(ActionKind), schema.nodes, schema.texts)
    values = np.asarray(action)
    whole = values.shape == (3,) and values.dtype.kind in "iu"
    if not whole or not all(0 <= value < size for value, size in zip(values, sizes, strict=True)):
        raise gymnasium.error.InvalidAction(
            f"an action is three whole numbers (kind, node, text) below {sizes}, not {action!r:.80}"
        )
    kind, node, text = (int(value) for value in values)
    return Action(ActionKind(kind), node, text)


def default_options(schema: Schema) -> BrowserOptions:
    """How browsers are started that nobody said anything about."""
    return BrowserOptions(display="Prefer" if schema.frame else "None")


def describe(episode: Episode, *, success: bool, invalid: str | None, settled: bool) -> dict[str, Any]:
    """The ``info`` of a step."""
    # Which way frames came: from the screen they look a little different than from a screenshot.
    frames = {"frame_source": episode.frames.way} if episode.frames else {}
    return {
        "goal": episode.instruction.text,
        "texts": episode.view.texts,
        "success": success,
        "invalid_action": invalid is not None,
        "invalid_reason": invalid or "",
        "settled": settled,
        **frames,
    }


class WebEnv(gymnasium.Env[Observation, ActionArray]):
    """One task in one browser of its own.

    The browser is started by the first :meth:`reset` and ended by :meth:`close`, or else with the environment itself.

    Args:
        task: a task's name, or ``module:Class``.
        params: parameters of the task.
        schema: sizes of the observation.
        max_steps: steps until an episode is truncated; None for the task's own.
        browser: how the browser is started; by default headless, or on a virtual display where there is Xvfb and the
            schema has a frame.
        settle_budget: seconds that a page may take to come to rest after an action.
        render_mode: ``rgb_array`` for pictures of the page from :meth:`render`.

    Raises:
        TaskError: there is no such task.
        gymnasium.error.UnsupportedMode: another render mode.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 4}  # type: ignore[misc]

    def __init__(
        self,
        task: str,
        *,
        params: Mapping[str, Any] | None = None,
        schema: Schema | None = None,
        max_steps: int | None = None,
        browser: BrowserOptions | None = None,
        settle_budget: float = 1.0,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise gymnasium.error.UnsupportedMode(f"render_mode is 'rgb_array' or None, not {render_mode!r}")
        self._params = dict(params or {})
        create_task(task, self._params)  # fail now, not when the browser runs
        self.task = task
        self.schema = schema or Schema()
        self.observation_space = cast("spaces.Space[Observation]", observation_space(self.schema))
        self.action_space = action_space(self.schema)
        self.render_mode = render_mode
        self._max_steps = max_steps
        self._options = browser or default_options(self.schema)
        self._settle_budget = settle_budget
        self._loop: LoopThread | None = None
        self._pool: BrowserPool | None = None
        self._tenant: Tenant | None = None
        self._episode: Episode | None = None
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode. The page's seed is drawn from the environment's random numbers, hence from ``seed``.

        Args:
            seed: seeds this and the following episodes.
            options: ``page_seed`` names the page's seed itself.

        Raises:
            BrowserError: no browser can be started, or the task's page cannot be loaded.
        """
        super().reset(seed=seed)
        self._running = False
        drawn = int(self.np_random.integers(_MOST_SEED))
        page_seed = int((options or {}).get("page_seed", drawn))
        observation = self._call(self._reset(page_seed))
        assert self._episode is not None
        self._running = True
        return observation, describe(self._episode, success=False, invalid=None, settled=True)

    def step(self, action: ActionArray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Do one action.

        An action that the mask forbids does nothing and says so in ``info["invalid_action"]``. When the page or its
        browser breaks, the episode is truncated and ``info["fault"]`` says why; the next reset has a new browser.

        Raises:
            gymnasium.error.ResetNeeded: no episode is running: none was begun, or it has ended.
            gymnasium.error.InvalidAction: the action is no member of the action space; nothing was done.
        """
        episode = self._episode
        if episode is None or not self._running:
            raise gymnasium.error.ResetNeeded("no episode is running: call reset() before step()")
        chosen = to_action(action, self.schema)
        try:
            step = self._call(episode.step(chosen))
        except BrowserFault as fault:
            observation = _copy(episode.view.observation)
            info = describe(episode, success=False, invalid=None, settled=False)
            info["fault"] = f"{type(fault).__name__}: {fault}"
            self._running = False
            self._call(self._give_back(fault))
            return observation, 0.0, False, True, info
        self._running = not (step.terminated or step.truncated)
        info = describe(episode, success=step.success, invalid=step.invalid, settled=step.settled)
        return _copy(step.view.observation), step.reward, step.terminated, step.truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        """The page as uint8 (height, width, 3) RGB, with ``render_mode="rgb_array"``."""
        if self.render_mode is None or self._episode is None:
            return None
        png = self._call(self._episode.page.screenshot())
        return np.array(Image.open(io.BytesIO(png)).convert("RGB"))

    def random_action(self) -> ActionArray:
        """One of the actions that the mask of the latest observation allows, int64 (kind, node, text).

        Drawn from ``np_random``, so a seeded reset repeats it.

        Raises:
            gymnasium.error.ResetNeeded: no episode runs.
        """
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("call reset() before random_action()")
        possible = np.flatnonzero(self._episode.view.observation["action_mask"])
        kind, node, text = self.schema.decode(int(self.np_random.choice(possible)))
        return np.array([int(kind), node, text], dtype=np.int64)

    def close(self) -> None:
        """End the browser. Harmless twice."""
        loop, self._loop, self._running = self._loop, None, False
        if loop is None:
            return
        self._forgotten.detach()
        try:
            loop.close()
        finally:
            self._episode = self._tenant = self._pool = None

    async def _reset(self, page_seed: int) -> Observation:
        episode = await self._hold()
        try:
            view = await episode.reset(page_seed, self._max_steps)
        except BrowserFault as fault:
            # A browser that died between two episodes is nobody's fault: once more, with a new one.
            await self._give_back(fault)
            episode = await self._hold()
            view = await episode.reset(page_seed, self._max_steps)
        return _copy(view.observation)

    async def _hold(self) -> Episode:
        """Borrow the browser until something breaks."""
        if self._tenant is None:
            assert self._loop is not None
            egress = egress_proxy(self._options, [create_task(self.task, self._params)])
            self._pool = await self._loop.enter(BrowserPool(self._options, 1, egress=egress))
            seat = Seat(self._pool, 0, self.schema, self._settle_budget)
            self._tenant = await self._loop.enter(Tenant(seat))
        self._episode = await self._tenant.take(self.task, self._params)
        return self._episode

    async def _give_back(self, fault: BrowserFault) -> None:
        """Let the pool replace what broke."""
        self._episode = None
        if self._tenant is not None:
            await self._tenant.give_back(fault)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = LoopThread("browser")
            self._forgotten = weakref.finalize(self, self._loop.abandon)
            self._forgotten.atexit = False  # the loop has its own way to end with Python
        return self._loop.call(work)


def _copy(observation: Observation) -> Observation:
    return {name: array.copy() for name, array in observation.items()}
