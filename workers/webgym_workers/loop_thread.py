"""An event loop in a thread of its own, for interfaces that block: it also works where a loop is running already.

While nobody calls, the loop goes on: a browser that dies between two calls is replaced meanwhile.

Whoever forgets to close is looked after. What the garbage collector finds calls :meth:`LoopThread.abandon`. When Python
ends, all loops that are left do so too, before browsers and displays are killed: nobody sees those die or complains.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar

__all__ = ["LoopThread"]

T = TypeVar("T")

_END_SECONDS = 5.0
"""How long a loop may take to end when Python does."""

_running: set[LoopThread] = set()
"""Loops whose threads have not ended. Held here, an abandoned one can finish what it has to."""

os.register_at_fork(after_in_child=_running.clear)


class LoopThread:
    """A running event loop, until :meth:`close`.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_report)
        self._contexts = AsyncExitStack()
        self._last: asyncio.Task[None] | None = None
        # A daemon, so that a program that forgets to close what it opened can end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        _running.add(self)
        # Handlers are called in reverse: those that kill browsers were registered when their modules were imported.
        atexit.unregister(_end_all)
        atexit.register(_end_all)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
            _running.discard(self)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin some work; returns at once."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work and wait for its result; an interrupt of the caller cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter a context that is left when the loop ends, in the loop's own thread."""
        return await self._contexts.enter_async_context(context)

    def close(self) -> None:
        """Leave the contexts, cancel what is still running and end the thread, with those that the loop has started.

        Nothing is left to do once Python has begun to end.
        """
        if self._loop.is_closed():
            return
        try:
            self.call(self._contexts.aclose())
        finally:
            try:
                self.call(
                    self._wind_up()
                )  # An interrupted end of a context goes on as a task, which is waited for.
            finally:
                self._stop()
                self._thread.join()

    def abandon(self) -> None:
        """Begin what :meth:`close` does, and return at once: for finalizers, which any thread may run, this one too."""

        def begin() -> None:
            self._last = asyncio.ensure_future(self._leave())
            self._last.add_done_callback(lambda _: self._loop.stop())

        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(begin)

    def _stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._loop.stop)

    async def _leave(self) -> None:
        # When Python ends there are no executors any more, so not all of this can go through. What is left then is
        # killed by the handlers that come after ours.
        with contextlib.suppress(Exception):
            await self._contexts.aclose()
        with contextlib.suppress(RuntimeError):
            await self._wind_up()

    @staticmethod
    async def _wind_up() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        loop = asyncio.get_running_loop()
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()


def _end_all() -> None:
    left = list(_running)
    for one in left:
        one.abandon()
    for one in left:
        one._thread.join(_END_SECONDS)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # When Python ends, whoever forgot to close has no use for what breaks off.
    if threading.main_thread().is_alive():
        loop.default_exception_handler(context)
