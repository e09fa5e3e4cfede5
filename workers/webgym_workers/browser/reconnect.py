"""Bringing a broken connection to a remote browser back, with everything that was in force."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from webgym.errors import BrowserError
from webgym_workers.browser.cdp import CDPClient
from webgym_workers.browser.faults import BrowserFault, BrowserGone, CDPError, ConnectionLost, TargetClosed
from webgym_workers.browser.session import CDPSession
from webgym_workers.browser.transport import Receiver, Transport

__all__ = ["PATIENCE_SECONDS", "Dial", "Reconnection", "backoff"]

log = logging.getLogger(__name__)

Dial = Callable[[Receiver], Awaitable[Transport]]

PATIENCE_SECONDS = 15.0
"""How long a browser may be out of reach until it counts as gone."""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
RESTORE_SECONDS = 5.0
"""Deadline of each command that restores something."""


def backoff(first: float = FIRST_PAUSE_SECONDS, longest: float = LONGEST_PAUSE_SECONDS) -> Iterator[float]:
    """Seconds to let go by between one try and the next, without end."""
    pause = first
    while True:
        yield pause
        pause = min(longest, pause * 2)


class Reconnection:
    """Connects a client again whenever it loses its browser.

    While there is no connection, commands that come wait in their sessions; those that were pending have failed with
    ``ConnectionLost``. Tabs are attached again under the sessions that callers hold, then their state is restored from
    the journals, and only then does what waits go on. So no command sees a tab without its viewport or its scripts.

    Args:
        place: The browser, for people.
        dial: Makes a connection.
        patience: Seconds until a browser that cannot be reached counts as gone.

    Attributes:
        count: How often the connection came back.
    """

    def __init__(self, place: str, dial: Dial, patience: float = PATIENCE_SECONDS) -> None:
        self.count = 0
        self._place = place
        self._dial = dial
        self._patience = patience
        self._task: asyncio.Task[None] | None = None

    def begin(self, client: CDPClient, why: str) -> None:
        """The client lost its connection; bring it back, in the background."""
        # Lost again while it is being restored: the task that runs sees its own commands fail, and goes on trying.
        if self._task is None or self._task.done():
            log.warning("the connection to the browser at %s broke (%s); connecting again", self._place, why)
            self._task = client.loop.create_task(self._run(client), name="reconnect")

    def stop(self) -> None:
        """Try no longer."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, client: CDPClient) -> None:
        deadline = client.loop.time() + self._patience
        why: BaseException | None = None
        for pause in backoff():
            try:
                async with asyncio.timeout_at(deadline):
                    client.use(await self._dial(client))
                    await restore(client)
            except (BrowserError, TimeoutError) as error:
                why = error if str(error) else why
            else:
                if client.connected:
                    break
            if client.gone is not None:
                return
            if client.loop.time() + pause >= deadline:
                cause = f": {why}" if why else ""
                client.close(
                    BrowserGone(
                        f"the browser at {self._place} was lost and not reached again in {self._patience:g} s{cause}"
                    )
                )
                return
            await asyncio.sleep(pause)
        self.count += 1
        log.info("connected to the browser at %s again", self._place)
        for session in (client.browser, *client.sessions):
            session.resume()


async def restore(client: CDPClient) -> None:
    """Attach a client's tabs again and put in force what was.

    A tab that is not there any more, or does not answer, is closed for its callers (``TargetClosed``).

    Raises:
        BrowserFault: The connection broke again, or the browser does not answer.
    """
    await _say_again(client.browser)
    await asyncio.gather(*[_restore_tab(client, session) for session in client.sessions])


async def _restore_tab(client: CDPClient, session: CDPSession) -> None:
    target = client.targets.get(session.id or "")
    if target is None or session.closed is not None:
        client.drop(session, TargetClosed("the tab was closed"))
        return
    try:
        answer = await client.browser.say_again(
            "Target.attachToTarget", {"targetId": target, "flatten": True}, RESTORE_SECONDS
        )
        client.reattach(session, str(answer["sessionId"]), target)
        await _say_again(session)
    except (ConnectionLost, BrowserGone):
        raise
    except CDPError:
        client.drop(session, TargetClosed("the tab was closed while its browser was out of reach"))
    except BrowserFault as error:
        client.drop(
            session, TargetClosed(f"the tab does not answer after its browser was out of reach: {error}")
        )


async def _say_again(session: CDPSession) -> None:
    journal = session.journal
    if journal is None:
        return
    rerun = session.id is not None and await _has_other_document(session, journal.document)
    said = list(journal.to_say(rerun=rerun))
    # Sent at once and in order; answers are waited for together.
    answers = await asyncio.gather(
        *[session.say_again(method, params, RESTORE_SECONDS) for _, method, params in said],
        return_exceptions=True,
    )
    for (key, method, _), answer in zip(said, answers, strict=True):
        if isinstance(answer, CDPError):
            log.warning("could not be restored after a reconnect: %s", answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            journal.said(key, answer)
            log.debug("restored: %s", method)


async def _has_other_document(session: CDPSession, known: str | None) -> bool:
    """Whether the tab went to another page while nobody could tell us: scripts have not run in it yet."""
    tree = await session.say_again("Page.getFrameTree", {}, RESTORE_SECONDS)
    frame = tree["frameTree"]["frame"]
    if known is None:
        return str(frame.get("url")) != "about:blank"
    return str(frame.get("loaderId")) != known
