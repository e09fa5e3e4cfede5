"""Where the queue of a run is, for as long as the run lasts: a file in its folder, for commands from outside."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from webgym.errors import OutputError
from webgym.rundir import RunDirectory, write_atomic

if TYPE_CHECKING:
    from webgym.broker import BrokerConfig
    from webgym.spec import Redis

__all__ = ["Whereabouts", "find_run", "whereabouts_file"]

_FILE = ".webgym/redis.json"


class Whereabouts(NamedTuple):
    """A run's server and its name there."""

    config: BrokerConfig
    uid: str


@contextlib.contextmanager
def whereabouts_file(directory: RunDirectory, redis: Redis, url: str, uid: str) -> Iterator[None]:
    """A file in the run's folder that tells where its queue is, while the block runs.

    Args:
        directory: the run's.
        redis: the manifest's part. A server that it names is not told again: its URL may hold a password.
        url: of a server that the run brought along.
        uid: names the run's keys, which for an evaluation are not those of the folder.
    """
    file = directory.path / _FILE
    write_atomic(file, json.dumps({"url": url if redis.url is None else None, "uid": uid}) + "\n")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def find_run(path: Path) -> Whereabouts:
    """The server of a run that lasts.

    Raises:
        OutputError: the folder holds no run, or the run is over.
        UsageError: the password's source or a certificate is missing.
    """
    from webgym.connection import broker_config
    from webgym.manifest import load_manifest

    directory = RunDirectory.open(path)
    try:
        found = json.loads((path / _FILE).read_text())
        url, uid = found["url"], str(found["uid"])
    except (OSError, ValueError, KeyError, TypeError):
        raise over(path) from None
    redis = load_manifest(directory.manifest).spec.redis
    if redis.url is None and not (isinstance(url, str) and Path(url.removeprefix("unix://")).exists()):
        raise over(path)  # It was killed before it could remove its file.
    return Whereabouts(broker_config(redis, url), uid)


def over(path: Path) -> OutputError:
    """What is wrong when a run has no queue any more."""
    return OutputError(
        f"the run in {path} is over, and its queue with it; how its episodes ended is in {path / 'episodes.jsonl'}"
    )
