"""kopf's part: it keeps a watch on runs, and says what it sees.

Only plain events are handled. Other handlers, timers and daemons of kopf put finalizers and annotations on a run, and a
run with a finalizer cannot go while the operator is away.
"""

from __future__ import annotations

from typing import Any

import kopf

from webgym.crd import GROUP, PLURAL, VERSION
from webgym_operator.controller import Controller

__all__ = ["operator_settings", "registry_for"]


def registry_for(controller: Controller, login: Any) -> kopf.OperatorRegistry:
    """The handlers, bound to a controller.

    Args:
        controller: told of every change of a run.
        login: gives the credentials, as :func:`webgym_operator.api.connection` does.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def credentials(**_: Any) -> Any:
        return login()

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def changed(event: Any, **_: Any) -> None:
        body = event["object"]
        if event["type"] == "DELETED":
            controller.run_gone(body)
        else:
            controller.saw_run(body)

    return registry


def operator_settings() -> kopf.OperatorSettings:
    """kopf without what writes: no events from its log, no peering."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    # One look at what the server has is enough, and no right to watch definitions and namespaces is asked for.
    settings.scanning.disabled = True
    settings.watching.server_timeout = 290
    settings.watching.client_timeout = 330
    settings.networking.request_timeout = 30
    return settings
