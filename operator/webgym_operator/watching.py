"""Children of runs, watched by label on the server's side, and looked at as a whole from time to time.

kopf watches runs. It would watch every pod and Secret of the cluster to find the few that are ours.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from webgym.crd import CRD_NAME
from webgym.spec import KIND
from webgym_operator.api import Api, ApiError
from webgym_operator.cache import Cache, RunKey, run_key_of
from webgym_operator.controller import Controller
from webgym_operator.resources import CHILD_KINDS
from webgym_operator.schema_check import Definition

__all__ = ["SELECTOR", "Resync", "watch_children"]

logger = logging.getLogger(__name__)

SELECTOR = "app.kubernetes.io/managed-by=webgym-operator,webgym.io/run"
_RECONNECT_SECONDS, _LONGEST_RECONNECT = 0.5, 15.0


async def watch_children(
    api: Api, cache: Cache, kind: str, namespace: str | None, mark: Callable[[RunKey], None]
) -> None:
    """Keep the cache current for one kind, for ever: list, watch from there, list again when that breaks off.

    Args:
        api: the cluster.
        cache: told of everything.
        kind: of the children.
        namespace: None for all.
        mark: told which runs there is news of.
    """
    delay = _RECONNECT_SECONDS
    while True:
        try:
            began = time.monotonic()
            items, version = await api.list(kind, namespace, SELECTOR)
            for run in cache.replace(kind, namespace, items, began):
                mark(run)
            delay = _RECONNECT_SECONDS
            while True:
                async for type_, body in api.watch(kind, namespace, SELECTOR, version):
                    version = str(body["metadata"].get("resourceVersion", version))
                    if type_ == "BOOKMARK":
                        continue
                    key = run_key_of(body)
                    metadata = body["metadata"]
                    news = (
                        cache.gone(kind, metadata["namespace"], metadata["name"], metadata.get("uid", ""))
                        if type_ == "DELETED"
                        else cache.see(body)
                    )
                    if news and key is not None:
                        mark(key)
        except ApiError as error:
            # 410: what happened meanwhile is not kept any more; the list makes up for it.
            if error.status != 410:
                logger.warning("watching %s: %s; again in %.1f s", kind, error, delay)
            await asyncio.sleep(delay)
            delay = min(_LONGEST_RECONNECT, delay * 2)


class Resync:
    """Looks at everything at intervals, whatever was or was not heard meanwhile.

    Args:
        api: the cluster.
        cache: of children.
        controller: told of runs.
        namespaces: where to look; empty: everywhere.
        seconds: between two looks.
    """

    def __init__(
        self, api: Api, cache: Cache, controller: Controller, namespaces: tuple[str, ...], seconds: float
    ) -> None:
        self._api = api
        self._cache = cache
        self._controller = controller
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._seconds = seconds
        self._last = time.monotonic()
        self._kinds = list(CHILD_KINDS)
        self._definition_version = ""

    def leave_out(self, kind: str) -> None:
        """The server does not know a kind."""
        self._kinds.remove(kind)

    def unwell(self) -> str | None:
        """Why ``/healthz`` should fail: the last look was too long ago."""
        silent = time.monotonic() - self._last
        if silent > 3 * self._seconds + 30:
            return f"the last resync was {silent:.0f} s ago"
        return None

    async def once(self) -> None:
        """One look.

        Raises:
            ApiError: the server does not answer, or refuses.
        """
        await self._look_at_definition()
        for namespace in self._namespaces:
            known = self._controller.keys
            began = time.monotonic()
            # Children first: a run seen without its children would be given new ones.
            for kind in self._kinds:
                items, _ = await self._api.list(kind, namespace, SELECTOR)
                for key in self._cache.replace(kind, namespace, items, began):
                    self._controller.mark(key)
            runs, _ = await self._api.list(KIND, namespace)
            self._controller.all_runs(list(runs), namespace, known)
        for key in self._controller.keys:
            self._controller.mark(key)
        self._last = time.monotonic()

    async def _look_at_definition(self) -> None:
        try:
            installed = await self._api.get("CustomResourceDefinition", None, CRD_NAME)
        except ApiError as error:
            if error.status in (403, 404):
                return
            raise
        version = str(installed["metadata"].get("resourceVersion", ""))
        if version != self._definition_version:
            self._definition_version = version
            self._controller.saw_definition(Definition(installed))

    async def forever(self) -> None:
        """Look, at once and at intervals."""
        while True:
            try:
                await self.once()
                await asyncio.sleep(self._seconds)
            except ApiError as error:
                logger.warning("resync: %s", error)
                await asyncio.sleep(min(5.0, self._seconds))
