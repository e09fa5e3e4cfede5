"""``webgym operator``: the program of the operator's pod."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from webgym.errors import ExitCode

if TYPE_CHECKING:
    from webgym.program import Drain
    from webgym.telemetry import Numbers
    from webgym_operator.api import Api
    from webgym_operator.cache import Cache
    from webgym_operator.controller import Controller
    from webgym_operator.settings import Settings
    from webgym_operator.watching import Resync

__all__ = ["OperatorCommand"]

logger = logging.getLogger(__name__)


class OperatorCommand:
    """What the operator's pod runs; also outside of a cluster, for development, with KUBECONFIG set."""

    name = "operator"
    help = "run the Kubernetes operator (in a pod, by the chart)"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """All it needs comes by environment; see :class:`webgym_operator.settings.Settings`."""

    def run(self, args: argparse.Namespace) -> int:
        """Run until SIGTERM. A second operator by mistake does no harm."""
        from webgym.errors import WebGymError
        from webgym.program import Drain
        from webgym.telemetry import configure_logging, last_word
        from webgym_operator.settings import Settings

        drain = Drain()
        drain.install()
        configure_logging(os.environ.get("WEBGYM_LOG") or None, worker="operator")
        logging.getLogger("kopf").setLevel(logging.WARNING)
        try:
            return asyncio.run(_serve(Settings.from_env(), drain))
        except WebGymError as error:
            logger.error("%s", error)
            log = os.environ.get("WEBGYM_TERMINATION_LOG")
            if log:
                last_word(Path(log), str(error))
            return error.exit_code


async def _serve(settings: Settings, drain: Drain) -> int:
    from webgym.telemetry import Numbers, TelemetryServer
    from webgym_operator.api import Api
    from webgym_operator.cache import Cache
    from webgym_operator.controller import Controller
    from webgym_operator.figures import FiguresReader
    from webgym_operator.resources import CHILD_KINDS
    from webgym_operator.watching import Resync, watch_children

    cache = Cache()
    async with Api() as api:
        await _refuse_older_schema(api)
        settings = await _with_storage_classes(settings, api)
        reader = FiguresReader(api, cache)
        controller = Controller(api, cache, settings, reader)
        resync = Resync(api, cache, controller, settings.watch_namespaces, settings.resync_seconds)
        kinds = list(CHILD_KINDS)
        if not await api.exists("/apis/policy/v1"):
            logger.warning("the server does not know policy/v1: there will be no PodDisruptionBudgets")
            controller.disruption_budgets = False
            kinds.remove("PodDisruptionBudget")
            resync.leave_out("PodDisruptionBudget")
        numbers = Numbers({"program": "operator"})
        with TelemetryServer(resync.unwell, host=settings.metrics_host, port=settings.metrics_port):
            # Before anything is decided: what is there already must be known.
            await _first_look(resync, drain)
            tasks = [
                asyncio.create_task(controller.work(), name="work"),
                asyncio.create_task(resync.forever(), name="resync"),
                asyncio.create_task(_count(numbers, controller, cache, api), name="numbers"),
                *(
                    asyncio.create_task(
                        watch_children(api, cache, kind, namespace, controller.mark), name=f"watch {kind}"
                    )
                    for kind in kinds
                    for namespace in settings.watch_namespaces or (None,)
                ),
                asyncio.create_task(_watch_runs(controller, settings, drain), name="kopf"),
            ]
            asked = asyncio.create_task(drain.wait_async(), name="drain")
            done, _ = await asyncio.wait([asked, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in (asked, *tasks):
                task.cancel()
            await asyncio.gather(asked, *tasks, return_exceptions=True)
            await reader.close()
        failed = [t for t in done - {asked} if not t.cancelled() and t.exception() is not None]
        for task in failed:
            logger.error("%s ended", task.get_name(), exc_info=task.exception())
        return int(ExitCode.FAILURE if failed else ExitCode.OK)


async def _watch_runs(controller: Controller, settings: Settings, drain: Drain) -> None:
    import kopf

    from webgym_operator.api import connection
    from webgym_operator.handlers import operator_settings, registry_for

    others = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=registry_for(controller, connection),
        settings=operator_settings(),
        standalone=True,
        clusterwide=not settings.watch_namespaces,
        namespaces=settings.watch_namespaces,
    )
    _ask_by_signal(drain)
    await kopf.run_tasks(tasks, ignored=others)


def _ask_by_signal(drain: Drain) -> None:
    """Take the signals back that kopf has taken over: its handlers set a future, which fails the second time."""
    loop, interrupts = asyncio.get_running_loop(), 0

    def asked(number: signal.Signals) -> None:
        nonlocal interrupts
        interrupts += number is signal.SIGINT
        if interrupts > 1:
            # At once, and not by a KeyboardInterrupt, whose trace whichever task it met would show. Nothing is lost:
            # what the operator has to remember lies in the runs' status.
            os._exit(ExitCode.INTERRUPTED)
        drain.request(number.name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked, number)


async def _first_look(resync: Resync, drain: Drain) -> None:
    from webgym_operator.api import ApiError

    while not drain.requested:
        try:
            await resync.once()
            return
        except ApiError as error:
            logger.warning("first look: %s", error)
            await asyncio.sleep(1.0)


async def _with_storage_classes(settings: Settings, api: Api) -> Settings:
    from webgym_operator.api import ApiError
    from webgym_operator.ownership import root_owned_classes

    if settings.volume_ownership != "Auto":
        return settings
    try:
        classes, _ = await api.list("StorageClass")
    except ApiError as error:
        logger.warning("may not look at storage classes, so all count as ones that heed fsGroup: %s", error)
        return settings
    return dataclasses.replace(settings, root_owned_classes=root_owned_classes(classes))


async def _refuse_older_schema(api: Api) -> None:
    from webgym.crd import CRD_NAME
    from webgym.errors import UsageError
    from webgym_operator.api import ApiError
    from webgym_operator.schema_check import missing_fields

    try:
        installed = await api.get("CustomResourceDefinition", None, CRD_NAME)
    except ApiError as error:
        if error.status == 403:
            logger.warning("may not read the CustomResourceDefinition, so its age is not checked: %s", error)
            return
        if error.status == 404:
            raise UsageError(
                f"the cluster has no CustomResourceDefinition {CRD_NAME}: install the chart with crds.enabled=true, "
                "or apply crds/"
            ) from None
        raise UsageError(str(error)) from error
    missing = missing_fields(installed)
    if missing:
        lacking = ", ".join(missing[:5]) + (" and more" if len(missing) > 5 else "")
        raise UsageError(
            f"the CustomResourceDefinition {CRD_NAME} of the cluster is older than this operator: it lacks {lacking}; "
            "upgrade the chart with crds.enabled=true"
        )


async def _count(numbers: Numbers, controller: Controller, cache: Cache, api: Api) -> None:
    while True:
        latencies = sorted(controller.latencies)
        numbers.set(
            {
                "operator_runs": controller.runs,
                "operator_objects": len(cache),
                "operator_api_writes": api.writes,
                "operator_latency_seconds": latencies[-1] if latencies else 0.0,
            }
        )
        await asyncio.sleep(5.0)
