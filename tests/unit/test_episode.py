"""An episode from deal to end, on a page that only plays one: what is loaded, counted, judged, and blamed on whom."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from webgym.errors import TaskError
from webgym.schema import Action, ActionKind, Schema
from webgym_workers.browser.faults import JavaScriptError
from webgym_workers.browser.page import Page
from webgym_workers.episode import Episode, init_scripts
from webgym_workers.observer.snapshot import NodeFlag
from webgym_workers.tasks import Goal, Outcome, Task
from webgym_workers.tasks.task import Json

SCHEMA = Schema(nodes=4, texts=3)
BUTTON = NodeFlag.INTERACTIVE | NodeFlag.HIT
FIELD = BUTTON | NodeFlag.EDITABLE


def node(number: int, tag: str, text: str, flags: int, value: str | None = None) -> list[Any]:
    return [number, tag, "", text, "", "", "", value, None, 10, 20, 40, 20, int(flags), ""]


def page_of(*nodes: list[Any], url: str = "http://shop.example/", **other: Any) -> dict[str, Any]:
    fields = {
        "title": "",
        "width": 100,
        "height": 100,
        "up": False,
        "down": False,
        "scroll": 0.0,
        "focused": 0,
    }
    return {**fields, "truncated": False, "url": url, "nodes": list(nodes), **other}


class Read(NamedTuple):
    """As :class:`webgym_workers.browser.page.Evaluation`."""

    value: Any
    settled: bool = True


class PlayedPage:
    """Says what it is told to say, and notes what is done to it."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.posted: list[tuple[str, str]] = []
        self.shown: Any = page_of(node(1, "button", "Ok", BUTTON), node(2, "input", "", FIELD))
        self.probe: Json = None
        self.dealt: Json = None
        self.threw: Json = None
        self.over = False
        self.asked: list[str] = []
        self.settled = True
        self.session = self
        self.subframes = SimpleNamespace(scrolling={})
        self.depth = 0

    def close_popups(self) -> None:
        self.depth = 0

    def follow_popups(self) -> None:
        pass

    async def navigate(self, url: str, timeout: float) -> None:
        self.log.append(url)

    async def call(self, method: str, params: Json = None) -> None:
        self.log.append(method)

    def post(self, method: str, params: Json) -> None:
        self.posted.append((method, params["type"]))

    async def evaluate(self, expression: str) -> Json:
        if "__webgym_observer.locate" in expression:
            return {"x": 30, "y": 30}
        self.log.append(expression)
        return self.dealt

    async def evaluate_settled(self, expression: str, budget: float) -> Read:
        self.asked.append(expression)
        over = self.over and "(over!) ? null :" in expression
        url = self.shown.get("url") if isinstance(self.shown, dict) else None
        page = None if over else self.shown
        return Read({"probe": self.probe, "threw": self.threw, "url": url, "page": page}, self.settled)

    async def click(self, x: float, y: float, count: int) -> None:
        self.log.append(("click", x, y, count))

    async def press(self, key: str) -> None:
        self.log.append(("press", key))

    async def back(self) -> bool:
        self.log.append("back")
        return True


class Shop(Task):
    max_steps = 3
    resets_in_page = True
    probe = "window.score"
    start = "http://shop.example/"

    def start_page(self, seed: int) -> str:
        return self.start

    def setup(self, seed: int) -> str:
        return f"deal({seed})"

    def goal(self, seed: int) -> Goal | str:
        return 'Click "Ok".'

    def judge(self, probe: Json) -> Outcome:
        return Outcome() if probe is None else Outcome(probe, done=True, success=probe > 0)


FORGET = "Page.resetNavigationHistory"
CLICK = Action(ActionKind.CLICK, 0)
BACK = Action(ActionKind.BACK)


@pytest.fixture
def page() -> PlayedPage:
    return PlayedPage()


def episode(page: PlayedPage, task: Task | None = None) -> Episode:
    return Episode(cast(Page, page), task or Shop(), SCHEMA)


async def test_before_the_first_reset_there_is_nothing_to_see(page: PlayedPage) -> None:
    with pytest.raises(RuntimeError, match="reset"):
        _ = episode(page).view


async def test_a_page_that_resets_in_place_is_loaded_once(page: PlayedPage) -> None:
    playing = episode(page)
    view = await playing.reset(7)
    assert page.log == ["http://shop.example/", FORGET, "deal(7)"]
    assert page.posted == [("Input.dispatchMouseEvent", "mouseMoved")]  # the mouse is out of the way
    assert playing.view is view
    assert playing.instruction.text == 'Click "Ok".'
    assert [n.text for n in view.nodes] == ["Ok", ""]
    assert view.texts[0] == "Ok"
    await playing.step(CLICK)
    await playing.reset(8)
    assert page.log[3:] == [("click", 30, 30, 1), "deal(8)"]


async def test_one_that_was_left_or_does_not_reset_in_place_is_loaded_anew(page: PlayedPage) -> None:
    playing = episode(page)
    await playing.reset(1)
    page.shown = page_of(node(1, "button", "Ok", BUTTON), url="http://shop.example/basket")
    await playing.step(CLICK)
    page.log.clear()
    await playing.reset(2)
    assert page.log == [
        "Network.clearBrowserCookies",
        "Storage.clearDataForOrigin",
        "http://shop.example/",
        FORGET,
        "deal(2)",
    ]

    class Elsewhere(Shop):
        resets_in_page = False
        start = "file:///shop.html#fruit"

    page.shown = page_of(url="file:///shop.html#fruit")
    playing = episode(page, Elsewhere())
    await playing.reset(1)
    page.log.clear()
    await playing.reset(2)
    assert page.log == ["about:blank", "file:///shop.html#fruit", FORGET, "deal(2)"]


@pytest.mark.parametrize(
    ("dealt", "text", "spans"),
    [
        (None, 'Click "Ok".', ("Ok",)),
        ("done", 'Click "Ok".', ("Ok",)),
        ({"goal": 3}, 'Click "Ok".', ("Ok",)),
        ({"goal": "Press the red one.", "emphasised": ["red"]}, "Press the red one.", ("red",)),
        ({"goal": "Press.", "emphasised": None}, "Press.", ()),
        ({"goal": "Press.", "emphasised": 5}, "Press.", ()),
    ],
)
async def test_the_page_may_bring_the_goal(
    page: PlayedPage, dealt: Json, text: str, spans: tuple[str, ...]
) -> None:
    page.dealt = dealt
    playing = episode(page)
    await playing.reset(1)
    assert playing.instruction.text == text
    assert playing.instruction.spans == spans


async def test_the_task_may_set_parts_of_its_goal_off(page: PlayedPage) -> None:
    class Emphatic(Shop):
        def goal(self, seed: int) -> Goal:
            return Goal("Press the red one.", ("red",))

    playing = episode(page, Emphatic())
    await playing.reset(1)
    assert playing.instruction.spans == ("red",)


@pytest.mark.parametrize(("asked", "limit"), [(None, 3), (2, 2)])
async def test_an_episode_is_cut_off_at_its_limit(page: PlayedPage, asked: int | None, limit: int) -> None:
    playing = episode(page)
    await playing.reset(1, asked)
    ends = [(s.terminated, s.truncated) for s in [await playing.step(CLICK) for _ in range(limit)]]
    assert ends == [(False, False)] * (limit - 1) + [(False, True)]


@pytest.mark.parametrize(("probe", "success"), [(1.0, True), (0.0, False), (-1.0, False)])
async def test_the_tasks_own_end_is_no_cut_even_in_the_last_step(
    page: PlayedPage, probe: float, success: bool
) -> None:
    playing = episode(page)
    await playing.reset(1, 1)
    page.probe = probe
    step = await playing.step(CLICK)
    assert (step.reward, step.terminated, step.truncated, step.success) == (probe, True, False, success)
    assert step.invalid is None


async def test_what_the_mask_forbids_does_nothing_but_counts(page: PlayedPage) -> None:
    playing = episode(page)
    await playing.reset(1)
    page.log.clear()
    for action in (Action(ActionKind.PRESS_ENTER), Action(ActionKind.CLICK, 3), Action(ActionKind.CLICK, 99)):
        step = await playing.step(action)
        assert step.invalid == "the action mask forbids it"
    assert page.log == []
    assert step.truncated


async def test_a_page_that_is_still_changing_says_so_and_may_be_waited_for(page: PlayedPage) -> None:
    playing = episode(page)
    view = await playing.reset(1)
    wait = SCHEMA.encode(Action(ActionKind.WAIT))
    assert not view.observation["action_mask"][wait]
    page.settled = False
    step = await playing.step(CLICK)
    assert not step.settled
    assert step.view.observation["action_mask"][wait]


async def test_back_is_possible_as_far_as_the_agent_has_come(page: PlayedPage) -> None:
    playing = episode(page)
    back = SCHEMA.encode(BACK)

    async def go(action: Action, url: str) -> bool:
        page.shown = page_of(node(1, "button", "Ok", BUTTON), url=url)
        return bool((await playing.step(action)).view.observation["action_mask"][back])

    view = await playing.reset(1, 99)
    assert not view.observation["action_mask"][back]
    assert not await go(CLICK, "http://shop.example/#top")
    assert await go(CLICK, "http://shop.example/a")
    assert await go(CLICK, "http://shop.example/b")
    assert await go(BACK, "http://shop.example/a")
    assert not await go(BACK, "http://shop.example/")
    assert page.log[-1] == "back"


@pytest.mark.parametrize("shown", [None, 3, {}, {"nodes": 1}, page_of([1, "a"]), page_of(width="wide")])
async def test_a_page_that_tampers_with_the_observer_is_the_sites_fault(page: PlayedPage, shown: Any) -> None:
    playing = episode(page)
    await playing.reset(1)
    page.shown = shown
    with pytest.raises(JavaScriptError, match="nonsense") as caught:
        await playing.step(CLICK)
    assert caught.value.blame == "site"


def fails(*_: Any) -> Any:
    raise KeyError("paid")


def returns(value: Any) -> Callable[..., Any]:
    return lambda *_: value


@pytest.mark.parametrize(
    ("method", "body", "words"),
    [
        ("start_page", fails, ("Broken.start_page(5) raised KeyError: 'paid'", "test_episode.py:")),
        ("setup", fails, ("Broken.setup(5) raised",)),
        ("goal", fails, ("Broken.goal(5) raised",)),
        ("judge", fails, ("Broken.judge('score') raised KeyError: 'paid'", "test_episode.py:")),
        ("start_page", returns(None), ("Broken.start_page(5) returned None, not str",)),
        ("setup", returns(3), ("returned 3, not str",)),
        ("goal", returns(["a"]), ("returned ['a'], not str or Goal",)),
        ("judge", returns(None), ("Broken.judge('score') returned None, not Outcome",)),
        ("judge", lambda *_: Outcome(float("nan")), ("ValueError: ", "finite")),
    ],
)
async def test_what_the_tasks_own_code_does_wrong_is_one_line(
    page: PlayedPage, method: str, body: Callable[..., Any], words: tuple[str, ...]
) -> None:
    task = type("Broken", (Shop,), {method: body})()
    page.probe = "score"
    with pytest.raises(TaskError) as caught:
        await episode(page, task).reset(5)
    assert len(str(caught.value).splitlines()) == 1
    for word in words:
        assert word in str(caught.value)


async def test_what_a_probe_threw_is_told_where_the_task_cannot_do_without(page: PlayedPage) -> None:
    page.threw = "ReferenceError: shop is not \x1b[1mdefined\n    at here"
    view = await episode(page).reset(5)  # this one takes None
    assert len(view.nodes) == 2
    task = type("Broken", (Shop,), {"judge": lambda self, probe: Outcome(probe["paid"])})()
    with pytest.raises(TaskError) as caught:
        await episode(page, task).reset(5)
    said = str(caught.value)
    assert said.startswith(
        r"Broken.probe threw ReferenceError: shop is not \x1b[1mdefined in the page, and Broken.judge(None)"
    )
    assert "raised TypeError" in said


def test_scripts_for_each_document() -> None:
    plain = init_scripts(Shop())
    assert len(plain) == 1
    assert "__webgym_observer" in plain[0]
    own = type("Own", (Shop,), {"init_script": lambda self: "window.score = 0"})()
    assert init_scripts(own) == [*plain, "window.score = 0"]


class ShortShop(Shop):
    over = "over!"


async def test_who_only_learns_does_not_look_at_the_page_once_it_is_over() -> None:
    page = PlayedPage()
    episode = Episode(cast(Page, page), ShortShop(), SCHEMA, read_end=False)
    before = await episode.reset(1)
    page.over, page.probe = True, 1.0
    page.shown = page_of(url="http://shop.example/thanks")
    step = await episode.step(CLICK)
    assert (step.terminated, step.success, step.reward) == (True, True, 1.0)
    assert step.view is before
    # Where the page went is known all the same: the next episode loads its start page anew.
    page.log.clear()
    page.over, page.probe = False, None
    await episode.reset(2)
    assert "http://shop.example/" in page.log


async def test_an_end_that_the_judge_does_not_see_is_looked_at_after_all() -> None:
    page = PlayedPage()
    episode = Episode(cast(Page, page), ShortShop(), SCHEMA, read_end=False)
    before = await episode.reset(1)
    page.over = True
    asked = len(page.asked)
    step = await episode.step(CLICK)
    assert len(page.asked) == asked + 2
    assert not step.terminated
    assert step.view is not before


async def test_an_environment_always_looks_at_the_end() -> None:
    page = PlayedPage()
    episode = Episode(cast(Page, page), ShortShop(), SCHEMA)
    before = await episode.reset(1)
    page.over, page.probe = True, 1.0
    step = await episode.step(CLICK)
    assert step.terminated
    assert step.view is not before
