"""What the pages of tasks may reach: the browsers' proxy from what tasks say, and page loads that it judges."""

from __future__ import annotations

from collections.abc import Iterable

from webgym.errors import TaskError
from webgym.spec import TaskSpec
from webgym_workers.browser.egress import EgressPolicy
from webgym_workers.browser.faults import EgressGone, NavigationError
from webgym_workers.browser.options import BrowserOptions
from webgym_workers.browser.page import Page
from webgym_workers.browser.proxy import EgressProxy
from webgym_workers.tasks.fault import describe_fault
from webgym_workers.tasks.registry import create_task
from webgym_workers.tasks.task import Task

__all__ = ["admit_task", "egress_proxy", "load_page", "tasks_of"]


def tasks_of(specs: Iterable[TaskSpec]) -> list[Task]:
    """The tasks of a manifest; those that cannot be made, which their first episode will tell, are left out."""
    found = []
    for spec in specs:
        try:
            found.append(create_task(spec.name, dict(spec.params)))
        except TaskError:
            continue
    return found


def egress_proxy(options: BrowserOptions, tasks: Iterable[Task]) -> EgressProxy | None:
    """The proxy for browsers on these tasks, to be opened by their pool.

    None where it would not be on the browsers' way: they are elsewhere, or have a proxy that somebody named.
    """
    if options.endpoint is not None or options.proxy is not None:
        return None
    starts = []
    for task in tasks:
        # Asked only so that the first servers are known before a browser starts, and reached past the proxy.
        try:
            starts.append(str(task.start_page(0)))
        except Exception:
            continue
    return EgressProxy(EgressPolicy(options.egress).with_sites(options.allowed_sites), starts)


async def admit_task(egress: EgressProxy, task: Task) -> None:
    """Let pages reach what a task names.

    Raises:
        TaskError: The task's own code raised, or named something else than texts.
    """
    name = type(task).__name__
    try:
        servers, sites = list(task.own_servers), list(task.allowed_sites)
    except Exception as error:
        raise TaskError(f"{name}.own_servers or allowed_sites raised {describe_fault(error)}") from error
    if not all(isinstance(text, str) for text in [*servers, *sites]):
        raise TaskError(f"{name}.own_servers and allowed_sites must hold texts alone")
    await egress.admit(servers, sites)


async def load_page(page: Page, url: str, timeout: float, egress: EgressProxy | None) -> None:
    """Go to a task's own page and wait for its load event.

    Raises:
        NavigationError: It did not load. Where the proxy refused it, or what it redirects to, ``url`` is what was
            refused and ``reason`` names the host and the policy.
        EgressGone: The proxy does not answer. It is being opened again.
        BrowserFault: As :meth:`~webgym_workers.browser.page.Page.navigate`.
    """
    if egress is None or not url.startswith(("http:", "https:")):
        await page.navigate(url, timeout=timeout)
        return
    await egress.admit([url])
    before = egress.refused
    failed: NavigationError | None = None
    try:
        await page.navigate(url, timeout=timeout)
    except NavigationError as error:
        failed = error
    if failed is not None and ("ERR_PROXY_CONNECTION_FAILED" in failed.reason or not await egress.answers()):
        raise EgressGone(
            f"cannot load {url:.200}: the browsers' proxy at {egress.address} does not answer; it is opened again"
        )
    if egress.refused > before:
        # Also a page that did load: over http the proxy's own answer looks like one.
        frame = (await page.session.call("Page.getFrameTree"))["frameTree"]["frame"]
        shown = str(frame.get("unreachableUrl") or frame["url"])
        if why := egress.why(shown):
            raise NavigationError(shown, why) from failed
    if failed is not None:
        raise failed
