"""Carrying out plans: each write at most once, and what the server answers remembered at once."""

from __future__ import annotations

import logging

from webgym.spec import KIND
from webgym_operator.api import Api, ApiError
from webgym_operator.cache import Cache
from webgym_operator.plan import Action, Create, Delete, DeleteRun, Patch
from webgym_operator.run import Run

__all__ = ["Writer"]

logger = logging.getLogger(__name__)


class Writer:
    """Writes to the cluster.

    Args:
        api: the cluster.
        cache: told of every answer.
    """

    def __init__(self, api: Api, cache: Cache) -> None:
        self._api = api
        self._cache = cache

    async def carry_out(self, run: Run, actions: list[Action]) -> ApiError | None:
        """Do what a plan says, in its order, up to the first refusal that trying again at once cannot mend.

        Raises:
            ApiError: the server cannot be reached, or is busy.
        """
        for action in actions:
            try:
                await self._do(run, action)
            except ApiError as error:
                if not error.permanent:
                    raise
                if "being terminated" in str(error):
                    return None  # the namespace goes, and everything with it
                logger.warning("%s/%s: %s: %s", run.namespace, run.name, action, error)
                return ApiError(error.status, _refusal(error), str(error))
        return None

    async def _do(self, run: Run, action: Action) -> None:
        namespace = run.namespace
        match action:
            case Create(body):
                kind, name = body["kind"], body["metadata"]["name"]
                try:
                    made = await self._api.create(body)
                except ApiError as error:
                    if error.status != 409:
                        raise
                    made = await self._api.get(kind, namespace, name)
                self._cache.wrote({"kind": kind, **made})
            case Patch(kind, name, body):
                try:
                    made = await self._api.patch(kind, namespace, name, body)
                except ApiError as error:
                    if error.status != 404:
                        raise
                    self._cache.gone(kind, namespace, name)
                else:
                    self._cache.wrote({"kind": kind, **made})
            case Delete(kind, name, uid, grace):
                await self._delete(namespace, kind, name, uid, grace)
            case DeleteRun():
                await self._delete(namespace, KIND, run.name, run.uid, None)

    async def _delete(self, namespace: str, kind: str, name: str, uid: str, grace: int | None) -> None:
        try:
            left = await self._api.delete(kind, namespace, name, uid=uid, grace_seconds=grace)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            # Gone, or another object has the name: either way the one that was meant is no more.
            self._cache.gone(kind, namespace, name, uid)
            return
        if (left.get("metadata") or {}).get("deletionTimestamp"):
            self._cache.wrote({"kind": kind, **left})
        else:
            self._cache.gone(kind, namespace, name, uid)


def _refusal(error: ApiError) -> str:
    if "exceeded quota" in str(error):
        return "QuotaExceeded"
    return {403: "Forbidden", 422: "Invalid"}.get(error.status, "Refused")
