"""What a film says of each action, and what of it is stored."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from webgym.keys import Keys
from webgym.queue import EpisodeTask
from webgym.schema import Action, ActionKind
from webgym_workers.episode import Episode
from webgym_workers.film import FilmRecorder, describe_action
from webgym_workers.observer.snapshot import Node, NodeFlag


def node(tag: str, text: str = "", attributes: str = "", value: str | None = None) -> Node:
    editable = NodeFlag.EDITABLE if tag == "input" else 0
    place = (10.0, 20.0, 40.0, 30.0)
    flags = NodeFlag.INTERACTIVE | editable
    return Node(1, tag, "", text, "", attributes, "", value, None, *place, flags, "")


NODES = (node("button", "Ok"), node("input", attributes="user name"), node("span"), node("div", "it's"))


class PlayedPage:
    shots = 0

    async def screenshot(self) -> bytes:
        self.shots += 1
        return b"png %d" % self.shots


def episode() -> Episode:
    view = SimpleNamespace(nodes=NODES, texts=("Bob", '"q"'))
    made = SimpleNamespace(view=view, page=PlayedPage(), instruction=SimpleNamespace(text="Sign in."))
    return cast(Episode, made)


@pytest.mark.parametrize(
    ("action", "caption"),
    [
        (Action(ActionKind.CLICK, 0), "click 'Ok'"),
        (Action(ActionKind.DOUBLE_CLICK, 0), "double click 'Ok'"),
        (Action(ActionKind.HOVER, 3), 'hover "it\'s"'),
        (Action(ActionKind.CLEAR, 1), "clear 'user'"),
        (Action(ActionKind.CLICK, 2), "click 'span'"),
        (Action(ActionKind.TYPE, 1, 0), "type 'Bob' into 'user'"),
        (Action(ActionKind.TYPE, 1, 1), "type '\"q\"' into 'user'"),
        (Action(ActionKind.SELECT_OPTION, 0, 0), "select option 'Bob' into 'Ok'"),
    ],
)
def test_an_action_on_a_node_names_it_and_shows_where_it_is(action: Action, caption: str) -> None:
    assert describe_action(episode(), action) == (caption, [10.0, 20.0, 40.0, 30.0])


@pytest.mark.parametrize(
    "kind", [ActionKind.PRESS_ENTER, ActionKind.SCROLL_DOWN, ActionKind.BACK, ActionKind.WAIT]
)
def test_an_action_on_the_page_has_no_box(kind: ActionKind) -> None:
    assert describe_action(episode(), Action(kind)) == (kind.name.lower().replace("_", " "), None)


class Pipe:
    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.expiring: dict[str, int] = {}

    def pipeline(self, *, transaction: bool) -> Pipe:
        return self

    async def __aenter__(self) -> Pipe:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def hset(self, name: str, mapping: dict[str, Any]) -> None:
        self.stored[name] = mapping

    def expire(self, name: str, seconds: int) -> None:
        self.expiring[name] = seconds

    async def execute(self) -> None: ...


async def test_a_film_is_a_frame_before_each_action_and_one_of_the_end() -> None:
    client, keys, playing = Pipe(), Keys("u1"), episode()
    film = FilmRecorder(cast(Any, client), keys).start(EpisodeTask("evaluate-1", "shop", seed=4))
    await film.frame(playing, Action(ActionKind.TYPE, 1, 0))
    await film.frame(playing, Action(ActionKind.PRESS_ENTER))
    assert client.stored == {}
    await film.end(playing, success=True)
    [(name, fields)] = client.stored.items()
    assert name == f"{keys.film}:evaluate-1"
    assert client.expiring[name] > 0
    meta = json.loads(fields.pop("meta"))
    assert fields == {"frame-0": b"png 1", "frame-1": b"png 2", "frame-2": b"png 3"}
    assert meta["frames"] == 3
    assert (meta["episode"], meta["task"], meta["seed"]) == ("evaluate-1", "shop", 4)
    assert (meta["goal"], meta["success"]) == ("Sign in.", True)
    assert [a["caption"] for a in meta["actions"]] == ["type 'Bob' into 'user'", "press enter"]
    assert [a["box"] is None for a in meta["actions"]] == [False, True]
