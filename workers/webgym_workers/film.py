"""Screenshots of an episode, for the report's film strip. They travel through Redis, so workers need no shared disk."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from webgym.keys import Keys
from webgym.queue import EpisodeTask
from webgym.schema import GLOBAL_KINDS, TEXT_KINDS, Action

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from webgym_workers.episode import Episode

__all__ = ["Film", "FilmRecorder", "describe_action"]

logger = logging.getLogger(__name__)

_KEEP_SECONDS = 3600


class FilmRecorder:
    """Makes films of the episodes that ask for one.

    Args:
        client: the run's Redis.
        keys: the run's keys.
    """

    def __init__(self, client: Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    def start(self, task: EpisodeTask) -> Film:
        """A film of one episode."""
        return Film(self._client, self._keys, task)


class Film:
    """The frames of one episode so far."""

    def __init__(self, client: Redis, keys: Keys, task: EpisodeTask) -> None:
        self._client = client
        self._key = keys.film
        self._task = task
        self._images: list[bytes] = []
        self._actions: list[dict[str, Any]] = []
        self._goal = ""

    async def frame(self, episode: Episode, action: Action) -> None:
        """Keep what the page looks like, and what is about to be done."""
        self._goal = episode.instruction.text
        self._images.append(await episode.page.screenshot())
        caption, box = describe_action(episode, action)
        self._actions.append({"caption": caption, "box": box})

    async def end(self, episode: Episode, *, success: bool) -> None:
        """Keep the last look and store the film; where the server refuses it, that is logged and there is none."""
        self._images.append(await episode.page.screenshot())
        meta = {
            "episode": self._task.episode,
            "task": self._task.task,
            "seed": self._task.seed,
            "goal": self._goal,
            "success": success,
            "actions": self._actions,
            "frames": len(self._images),
        }
        fields: dict[Any, Any] = {f"frame-{i}": image for i, image in enumerate(self._images)}
        name = f"{self._key}:{self._task.episode}"
        try:
            # No transaction: a worker's rights hold none, and half a film is none without its "meta".
            async with self._client.pipeline(transaction=False) as pipe:
                pipe.hset(name, mapping={**fields, "meta": json.dumps(meta)})
                pipe.expire(name, _KEEP_SECONDS)
                await pipe.execute()
        except ResponseError as error:
            # A full server, say. The episode counts without its film, too.
            logger.warning("the film of %s is not kept: %s", self._task.episode, error)


def describe_action(episode: Episode, action: Action) -> tuple[str, list[float] | None]:
    """Words for an action, and the box (x, y, width, height in CSS pixels) of the node it is about."""
    kind = action.kind.name.lower().replace("_", " ")
    if action.kind in GLOBAL_KINDS:
        return kind, None
    node = episode.view.nodes[action.node]
    name = node.caption or node.attributes.split(" ")[0] or node.tag
    text = f" {episode.view.texts[action.text]!r}" if action.kind in TEXT_KINDS else ""
    caption = f"{kind}{text} {'into ' if text else ''}{name!r}"
    return caption, [node.x, node.y, node.width, node.height]
