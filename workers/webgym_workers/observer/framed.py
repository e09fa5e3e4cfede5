"""Pages with frames that their own scripts cannot look into: read, put together and acted on as one page.

Each such frame is read by the observer in it; its nodes take their place in the page's list, in the page's coordinates.
A point of a frame counts as hit when each document around it would hand a click there on to the frame. A page without
such frames is read in one round trip, as if all this were not there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from webgym_workers.browser.faults import BrowserFault, CDPTimeout, JavaScriptError, TargetClosed
from webgym_workers.browser.settle import Evaluation, settle_expression
from webgym_workers.browser.subframes import Subframe, Subframes
from webgym_workers.observer.projection import IDENTITY, Projection
from webgym_workers.observer.snapshot import Node, NodeFlag

if TYPE_CHECKING:
    from webgym_workers.browser.page import Page

__all__ = ["evaluate", "evaluate_settled", "locate", "read_page", "scroll"]

MAX_FRAMES = 12
"""Frames of one document that are read, the largest first."""
MAX_DEPTH = 4
"""How deep frames in frames are read."""
MAX_SPOTS = 8
"""Nodes of a frame with a covered middle for which other places to click are looked for."""
LOCATE_SECONDS = 3.0
"""How long the place to click in a frame is looked for, while what is around it scrolls."""

_COVERED, _REACHED = 0, 1
_LEFT, _FLAGS, _POINT = 9, 13, 15
"""Columns of the observer's rows."""

Raw = dict[str, Any]


@dataclass
class _FrameRead:
    """What the observer in a frame said.

    Attributes:
        frame: The frame.
        raw: Its observer's answer.
        place: From its viewport to the page's.
        inner: The frames in it.
    """

    frame: Subframe
    raw: Raw
    settled: bool
    place: Projection
    inner: list[_FrameRead] = field(default_factory=list)

    def __iter__(self) -> Iterator[_FrameRead]:
        yield self
        for read in self.inner:
            yield from read


async def read_page(page: Page, expression: str, budget: float) -> Evaluation:
    """Read a page when it has come to rest, its frames included.

    Args:
        page: The page.
        expression: As for ``evaluate_settled``; its value is an object with the observer's answer as ``page``.
        budget: Seconds that the page, and then its frames, may take to come to rest.

    Raises:
        BrowserFault: The page or its browser failed. A frame that fails is left out.
    """
    read = await page.evaluate_settled(expression, budget)
    raw = _answer(read)
    subframes = page.subframes
    if raw is None or not raw.get("frames"):
        subframes.scrolling = {}
        return read
    inner = await _read_frames(subframes, None, raw, IDENTITY, budget, 1)
    if not inner:
        return read
    # What a frame did may have changed the page around it.
    settled = read.settled and all(one.settled for whole in inner for one in whole)
    checking = asyncio.ensure_future(_check_hits(page, inner))
    try:
        read = await page.evaluate_settled(expression, max(0.1, budget - read.milliseconds / 1e3))
        await checking
    finally:
        checking.cancel()
    raw = _answer(read)
    if raw is not None and page.subframes is subframes:
        try:
            _merge(raw, inner)
            subframes.scrolling = {
                way: [(float(raw[way]), None)]
                + [(float(one.raw[way]), one.frame) for whole in inner for one in whole]
                for way in ("up", "down")
            }
            for way, movers in subframes.scrolling.items():
                raw[way] = max(area for area, _ in movers)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise JavaScriptError(f"the page's observer script answered nonsense: {error!r}") from None
    return replace(read, settled=read.settled and settled)


def _answer(read: Evaluation) -> Raw | None:
    """The observer's answer; unpacked in its place, where it is one text."""
    raw = read.value.get("page") if isinstance(read.value, dict) else None
    if isinstance(raw, str):
        try:
            raw = read.value["page"] = json.loads(raw)
        except ValueError as error:
            raise JavaScriptError(f"the page's observer script answered nonsense: {error}") from None
    return raw if isinstance(raw, dict) else None


async def _read_frames(
    subframes: Subframes, parent: Subframe | None, raw: Raw, place: Projection, budget: float, depth: int
) -> list[_FrameRead]:
    if depth > MAX_DEPTH:
        return []
    largest = sorted(raw["frames"], key=lambda listed: -float(listed[3]))[:MAX_FRAMES]
    reads = await asyncio.gather(
        *[_read_frame(subframes, parent, int(listed[0]), place, budget, depth) for listed in largest]
    )
    return [read for read in reads if read is not None]


async def _read_frame(
    subframes: Subframes, parent: Subframe | None, element: int, outer: Projection, budget: float, depth: int
) -> _FrameRead | None:
    """What is in the frame of an element; None where it cannot be read."""
    frame: Subframe | None = None
    try:
        frame = await subframes.find(element, parent)
        if frame is None or frame.id in subframes.hanging:
            return None
        observe = settle_expression("__webgym_observer.observe('', true)", budget, 0)
        quiet, _, _, raw = await subframes.evaluate(frame, observe, budget)
        place = await _place(subframes, frame, (float(raw["width"]), float(raw["height"])))
        read = _FrameRead(frame, raw, bool(quiet), place)
        read.inner = await _read_frames(subframes, frame, raw, place, budget, depth + 1)
        return read
    except CDPTimeout:
        if frame is not None:
            subframes.hanging.add(frame.id)
    except (BrowserFault, KeyError, TypeError, ValueError, IndexError):
        # It has gone, has no script of ours, or tampers with it. Whatever ails the page itself is told by reading that.
        pass
    return None


async def _place(subframes: Subframes, frame: Subframe, size: tuple[float, float]) -> Projection:
    """From a frame's viewport to the page's."""
    place = Projection.of_quad(*size, await subframes.quad(frame))
    root = subframes.root_of(frame.parent)
    if root is None:
        return place
    sizes = await subframes.evaluate(root, "[innerWidth, innerHeight]")
    return place.inside(await _place(subframes, root, (float(sizes[0]), float(sizes[1]))))


async def _reached(
    page: Page, frame: Subframe, points: list[list[float]], places: dict[Subframe | None, Projection]
) -> list[int]:
    """For points of the page whether a click there reaches the frame: the observer's ``reached``, all around it."""
    levels = []
    at: Subframe | None = frame
    while at is not None:
        inverse = places[at.parent].inverse()
        ask = f"__webgym_observer.reached({at.element}, {json.dumps(inverse.points(points))})"
        levels.append(_evaluate(page, at.parent, ask))
        at = at.parent
    answers = await asyncio.gather(*levels)
    codes = []
    for told in zip(*answers, strict=True):
        codes.append(_COVERED if _COVERED in told else max(int(code) for code in told))
    return codes


async def _check_hits(page: Page, inner: list[_FrameRead]) -> None:
    """Take back what frames said of nodes that something around them covers or has scrolled out of view."""
    reads = [read for whole in inner for read in whole]
    places: dict[Subframe | None, Projection] = {None: IDENTITY} | {read.frame: read.place for read in reads}

    async def check(read: _FrameRead) -> None:
        try:
            rows = [row for row in read.raw["nodes"] if row[_FLAGS] & NodeFlag.HIT]
            points = read.place.points([row[_POINT] for row in rows])
            codes = await _reached(page, read.frame, points, places) if rows else []
            covered = [index for index, code in enumerate(codes) if code == _COVERED][:MAX_SPOTS]
            for index in covered:
                ask = f"__webgym_observer.spots({int(rows[index][0])})"
                spots = read.place.points(await page.subframes.evaluate(read.frame, ask))
                if _REACHED in await _reached(page, read.frame, spots, places):
                    codes[index] = _REACHED
        except (BrowserFault, KeyError, TypeError, ValueError, IndexError):
            read.raw["nodes"] = []
            return
        for row, code in zip(rows, codes, strict=True):
            if code != _REACHED:
                row[_FLAGS] &= ~NodeFlag.HIT
            if code > _REACHED:
                row[_FLAGS] |= NodeFlag.OFFSCREEN

    await asyncio.gather(*[check(read) for read in reads])


def _merge(raw: Raw, inner: list[_FrameRead]) -> None:
    """Put the nodes of frames into the page's answer, where the frames are."""
    nodes, texts = _split(raw["nodes"])
    added = {read.frame.element: read for read in inner}
    # From the last on, so that places before it stay what they are.
    for element, node_at, text_at, _ in reversed(raw["frames"]):
        read = added.get(element)
        if read is None:
            continue
        try:
            _merge(read.raw, read.inner)
            focused = raw.get("focusedFrame") == element
            rows = [_moved(row, read, focused=focused) for row in read.raw["nodes"]]
            focus = int(read.raw["focused"])
        except (KeyError, TypeError, ValueError, IndexError):
            continue
        more_nodes, more_texts = _split(rows)
        nodes[node_at:node_at] = more_nodes
        texts[text_at:text_at] = more_texts
        if focused:
            raw["focused"] = focus
        raw["truncated"] = bool(raw["truncated"] or read.raw["truncated"])
    raw["nodes"] = nodes + texts


def _split(rows: list[list[Any]]) -> tuple[list[list[Any]], list[list[Any]]]:
    nodes = [row for row in rows if row[_FLAGS] & NodeFlag.INTERACTIVE]
    return nodes, [row for row in rows if not row[_FLAGS] & NodeFlag.INTERACTIVE]


def _moved(row: list[Any], read: _FrameRead, *, focused: bool) -> list[Any]:
    """A node of a frame, in the page's coordinates."""
    flags = row[_FLAGS] if focused else row[_FLAGS] & ~NodeFlag.FOCUSED
    if len(row) > _POINT and isinstance(row[_POINT], int):
        # It has been moved already, out of a frame in this frame.
        return [*row[:_FLAGS], flags, *row[_FLAGS + 1 :]]
    box = read.place.box(*(float(value) for value in row[_LEFT:_FLAGS]))
    return [*row[:_LEFT], *box, flags, row[_FLAGS + 1], read.frame.element]


async def _evaluate(page: Page, frame: Subframe | None, expression: str) -> Any:
    return (
        await page.evaluate(expression) if frame is None else await page.subframes.evaluate(frame, expression)
    )


async def evaluate(page: Page, node: Node, expression: str) -> Any:
    """The JSON value of an expression in the document that a node is in; None when its frame is gone.

    Raises:
        BrowserFault: As ``Page.evaluate``.
    """
    if not node.frame:
        return await page.evaluate(expression)
    frame = page.subframes.owned_by(node.frame)
    try:
        return None if frame is None else await page.subframes.evaluate(frame, expression)
    except TargetClosed:
        _check_open(page)
        return None


async def evaluate_settled(page: Page, node: Node, expression: str, budget: float) -> Any:
    """The same, once the document has come to rest."""
    if not node.frame:
        return (await page.evaluate_settled(expression, budget)).value
    answer = await evaluate(page, node, settle_expression(expression, budget, 0))
    return answer[3] if isinstance(answer, list) and len(answer) == 4 else None


async def locate(page: Page, node: Node) -> Any:
    """Where to click for a node: x and y in CSS pixels of the viewport, or why not (``error``).

    It is scrolled into view where it has to be.

    Raises:
        BrowserFault: As ``Page.evaluate``.
    """
    if not node.frame:
        return await page.evaluate(f"__webgym_observer.locate({node.id})")
    frame = page.subframes.owned_by(node.frame)
    try:
        return {"error": "gone"} if frame is None else await _locate(page, frame, node.id)
    except TargetClosed:
        _check_open(page)
        return {"error": "gone"}


def _check_open(page: Page) -> None:
    """A frame is gone: raises what ended the page where that is gone, too."""
    closed = page.session.closed
    if closed is not None:
        raise closed


async def _locate(page: Page, frame: Subframe, id: int) -> Any:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LOCATE_SECONDS
    while True:
        answer = await page.subframes.evaluate(frame, f"__webgym_observer.points({id})")
        if "error" in answer:
            return answer
        places = await _places(page, frame)
        points = places[frame].points(answer["points"])
        codes = await _reached(page, frame, points, places)
        if _REACHED in codes:
            x, y = points[codes.index(_REACHED)]
            if page.subframes.root_of(frame) is None or await _arrives(page, frame, id, x, y):
                return {"x": x, "y": y}
        elif all(code == _COVERED for code in codes):
            break
        else:
            await _reveal(page, frame, places, points[next(i for i, code in enumerate(codes) if code)])
        if loop.time() > deadline:
            break
    return {"error": "covered"}


async def _arrives(page: Page, frame: Subframe, id: int, x: float, y: float) -> bool:
    """Whether the mouse at a point of the page is over a node of a frame in another process.

    To which process input goes, and where in it, is told by what was drawn last: a page that has just scrolled, and a
    frame that scrolls the page around it, which takes a message from one process to the other, are behind.
    """
    await page.hover(x, y)
    return bool(await page.subframes.evaluate(frame, f"__webgym_observer.hovered({id})"))


async def _reveal(
    page: Page, frame: Subframe, places: dict[Subframe | None, Projection], point: list[float]
) -> None:
    """Scroll what is around a frame until a point of it, given on the page, can be seen."""
    at: Subframe | None = frame
    while at is not None:
        ((x, y),) = places[at.parent].inverse().points([point])
        await _evaluate(page, at.parent, f"__webgym_observer.reveal({at.element}, {x}, {y})")
        at = at.parent


async def _places(page: Page, frame: Subframe) -> dict[Subframe | None, Projection]:
    """From the viewports of a frame and of all around it to the page's."""
    places: dict[Subframe | None, Projection] = {None: IDENTITY}
    at: Subframe | None = frame
    while at is not None:
        try:
            width, height = await page.subframes.evaluate(at, "[innerWidth, innerHeight]")
            places[at] = await _place(page.subframes, at, (float(width), float(height)))
        except (TypeError, ValueError) as error:
            raise JavaScriptError(f"a frame tampered with its size: {error}") from None
        at = at.parent
    return places


async def scroll(page: Page, direction: int) -> bool:
    """Scroll up (-1) or down (1) what is largest of all that can be; False where nothing can."""
    expression = f"__webgym_observer.scroll({direction})"
    movers = page.subframes.scrolling.get("up" if direction < 0 else "down", [])
    for _, frame in sorted(movers, key=lambda mover: -mover[0]) or [(0.0, None)]:
        if await _evaluate(page, frame, expression):
            return True
    return False
