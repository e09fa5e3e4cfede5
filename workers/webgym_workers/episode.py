"""One episode at a time on one page: deal it, observe, act, judge. What the environment and the actor both drive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from webgym.errors import ProtocolError, TaskError
from webgym.printable import one_line
from webgym.schema import GLOBAL_KINDS, Action, ActionKind, Schema
from webgym_workers.actions import is_valid, perform
from webgym_workers.browser.faults import JavaScriptError
from webgym_workers.browser.settle import SKIP_WAITS
from webgym_workers.observer.features import View, build_view
from webgym_workers.observer.framed import read_page
from webgym_workers.observer.instruction import Instruction
from webgym_workers.observer.memory import EpisodeMemory
from webgym_workers.observer.snapshot import PageSnapshot, observe_expression, observer_script
from webgym_workers.reach import load_page
from webgym_workers.tasks.fault import describe_fault
from webgym_workers.tasks.task import Goal, Outcome, Task

if TYPE_CHECKING:
    from webgym_workers.browser.page import Page
    from webgym_workers.browser.proxy import EgressProxy
    from webgym_workers.frames.source import FrameSource

__all__ = ["Episode", "Step", "init_scripts"]

A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Step:
    """What one action led to; ``terminated`` and ``truncated`` as Gymnasium means them."""

    view: View
    reward: float
    terminated: bool
    truncated: bool
    success: bool
    invalid: str | None
    """Why nothing was done, when nothing was."""
    settled: bool
    """False when the page was still changing at the end of the budget."""


def init_scripts(task: Task) -> list[str]:
    """The scripts to install at document start in each page of the task."""
    skip = SKIP_WAITS if task.skips_waits else ""
    return [s for s in (skip, observer_script(), task.init_script()) if s]


class Episode:
    """Episodes of one task on one page, one after the other.

    Args:
        page: a page with :func:`init_scripts` installed.
        task: the task; its viewport is the page's.
        schema: sizes of the observation.
        settle_budget: seconds that the page may take to come to rest after an action.
        navigation_timeout: seconds that the start page may take to load.
        frames: where frames come from; needed when the schema has them. They stay good for as long as they are held.
        egress: the browsers' proxy, which is told of start pages before they are loaded.
        read_end: whether the page is observed once more when the task says that the episode is over. Who only learns
            from it does not look at what follows a termination; its last view is then the one before.
    """

    def __init__(
        self,
        page: Page,
        task: Task,
        schema: Schema,
        *,
        frames: FrameSource | None = None,
        settle_budget: float = 1.0,
        navigation_timeout: float = 15.0,
        egress: EgressProxy | None = None,
        read_end: bool = True,
    ) -> None:
        self.page = page
        self.task = task
        self.frames = frames
        self._schema = schema
        self._budget = settle_budget
        self._navigation_timeout = navigation_timeout
        self._egress = egress
        # Whoever throws may throw anything, even what cannot be turned into a text.
        self._read = (
            f"(() => {{ let probe = null, threw; try {{ probe = ({task.probe}); }}"
            " catch (e) { threw = 'an exception'; try { threw = `${e}`.slice(0, 300); } catch {} }"
            " return {probe, threw, url: location.href, page: "
        )
        self._observer = observe_expression(task.exclude)
        self._over = "false" if read_end or not task.over else f"({task.over})"
        self._loaded: str | None = None
        self._memory = EpisodeMemory(task.max_steps)
        self._instruction = Instruction("")
        self._view: View | None = None
        self._url = ""
        # For each open popup, what "navigations" was in the tab that opened it.
        self._openers: list[int] = []

    @property
    def instruction(self) -> Instruction:
        """The running episode's instruction."""
        return self._instruction

    @property
    def view(self) -> View:
        """The latest observation.

        Raises:
            RuntimeError: no episode was started.
        """
        if self._view is None:
            raise RuntimeError("call reset() first")
        return self._view

    async def reset(self, seed: int, max_steps: int | None = None) -> View:
        """Start the episode of a seed; the page is loaded only when it is not the start page any more.

        Raises:
            BrowserFault: the page, or its browser, broke; the page must be replaced.
            TaskError: the task's own code raised.
        """
        self.page.close_popups()
        # Where the mouse was left, it would open a menu of the new episode. Not waited for: it is done before we look.
        self.page.session.post("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": -1, "y": -1})
        start = self._ask("start_page", self.task.start_page, seed, str)
        if self._loaded != start or self._memory.navigations or not self.task.resets_in_page:
            await self._load(start)
        dealt = await self.page.evaluate(self._ask("setup", self.task.setup, seed, str))
        self._loaded = start
        if isinstance(dealt, dict) and isinstance(dealt.get("goal"), str):
            emphasised = dealt.get("emphasised")
            parts = tuple(map(str, emphasised)) if isinstance(emphasised, list) else ()
            goal = Goal(dealt["goal"], parts)
        else:
            said = self._ask("goal", self.task.goal, seed, (str, Goal))
            goal = Goal(said) if isinstance(said, str) else said
        self._instruction = Instruction(goal.text, goal.emphasised)
        self._memory = EpisodeMemory(max_steps or self.task.max_steps)
        self._url = ""
        self._openers.clear()
        self._view, _ = await self._observe()
        return self._view

    async def step(self, action: Action) -> Step:
        """Do one action and look at what came of it. An action that the mask forbids does nothing.

        Raises:
            BrowserFault: the page, or its browser, broke; the page must be replaced.
        """
        view = self.view
        memory = self._memory
        if is_valid(action, view, self._schema):
            invalid = await perform(self.page, action, view, budget=self._budget)
        else:
            invalid = "the action mask forbids it"
        node_id = None if action.kind in GLOBAL_KINDS or invalid else view.nodes[action.node].id
        memory.note(action.kind, node_id, invalid=invalid is not None)
        went_back = action.kind is ActionKind.BACK and not invalid
        self._view, outcome = await self._observe(went_back=went_back, over=self._over)
        terminated = outcome.done
        truncated = not terminated and memory.step >= memory.limit
        return Step(
            self._view,
            outcome.reward,
            terminated,
            truncated,
            outcome.success,
            invalid,
            not memory.unsettled,
        )

    async def _observe(self, *, went_back: bool = False, over: str = "false") -> tuple[View, Outcome]:
        # The frame is marked in the same breath as the page is read, so it shows what was read.
        mark = self.frames.mark() if self.frames else "null"
        expression = f"{self._read}{over} ? null : {self._observer}, mark: {mark}}}; }})()"
        try:
            read = await read_page(self.page, expression, self._budget)
        except JavaScriptError as error:
            if str(error).startswith("SyntaxError"):
                await self._check_probe()
            raise
        answer = read.value if isinstance(read.value, dict) else {}
        outcome = self._judge(answer)
        skipped = over != "false" and answer.get("page") is None
        if skipped and not outcome.done:
            # The task's two ways of saying so differ; the judge's word counts, and the page is needed after all.
            return await self._observe(went_back=went_back)
        memory = self._memory
        memory.unsettled = not read.settled
        if skipped:
            self._note_place(str(answer.get("url")), went_back)
            return self.view, outcome
        try:
            snapshot = PageSnapshot.parse(answer.get("page"))
        except ProtocolError as error:
            # A page that meddles with our script costs its episode, not the process that holds other browsers, too.
            raise JavaScriptError(str(error)) from error
        self._note_place(snapshot.url, went_back)
        view = build_view(snapshot, self._instruction, memory, self._schema)
        if self.frames is not None:
            view.observation["frame"] = await self.frames.take(answer.get("mark"))
        return view, outcome

    def _judge(self, answer: dict[str, Any]) -> Outcome:
        """What the task makes of its probe.

        Raises:
            TaskError: its own code raised; with what the probe threw, if it did.
        """
        try:
            return self._ask("judge", self.task.judge, answer.get("probe"), Outcome)
        except TaskError as error:
            threw = answer.get("threw")
            if not isinstance(threw, str):
                raise
            said = one_line(threw.partition("\n")[0])
            raise TaskError(
                f"{type(self.task).__name__}.probe threw {said} in the page, and {error}"
            ) from error

    def _note_place(self, address: str, went_back: bool) -> None:
        """Count how far the episode is from its start page."""
        memory = self._memory
        url = address.partition("#")[0]
        depth = self.page.depth
        if depth < len(self._openers):
            # A popup was closed or left: what opened it has the history that it had.
            memory.navigations = self._openers[depth]
            del self._openers[depth:]
        elif depth > len(self._openers):
            self._openers += [memory.navigations] * (depth - len(self._openers))
            memory.navigations += 1
        elif self._url and url != self._url:
            memory.navigations += -1 if went_back and memory.navigations else 1
        self._url = url

    async def _check_probe(self) -> None:
        """See that the probe compiles; it is not run, so no page has a say in it.

        Raises:
            TaskError: it does not.
        """
        try:
            await self.page.evaluate(f"(() => ({self.task.probe})) && null")
        except JavaScriptError as error:
            name = type(self.task).__name__
            raise TaskError(f"{name}.probe is no JavaScript expression: {one_line(str(error))}") from error

    async def _load(self, start: str) -> None:
        """The start page, as a browser would show it that was never there."""
        self._loaded = None
        if self._url.startswith(("http:", "https:")):
            origin = "/".join(self._url.split("/", 3)[:3])
            await self.page.session.call("Network.clearBrowserCookies")
            await self.page.session.call(
                "Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"}
            )
        if "#" in start:
            # Going to an address with a fragment from the same address would only scroll.
            await self.page.navigate("about:blank", timeout=self._navigation_timeout)
        await load_page(self.page, start, self._navigation_timeout, self._egress)
        # "Back" leads no further than this, neither to where an earlier episode was.
        await self.page.session.call("Page.resetNavigationHistory")

    def _ask(
        self, method: str, call: Callable[[A], R], argument: A, kind: type[object] | tuple[type[object], ...]
    ) -> R:
        """Call a method of the task, which is anybody's code.

        Raises:
            TaskError: it raised, or returned something of another kind; one line with the place.
        """
        called = f"{type(self.task).__name__}.{method}({argument!r:.80})"
        try:
            answer = call(argument)
        except Exception as error:
            raise TaskError(f"{called} raised {describe_fault(error)}") from error
        if not isinstance(answer, kind):
            wanted = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
            raise TaskError(f"{called} returned {answer!r:.80}, not {wanted}")
        return answer
