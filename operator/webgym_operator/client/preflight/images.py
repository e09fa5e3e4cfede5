"""Whether nodes have, or may fetch, the images of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webgym_operator.client.preflight.estimate import PodNeed
from webgym_operator.client.preflight.finding import Finding, bad, good, warn
from webgym_operator.client.preflight.nodes import NodeView, fitting_nodes

__all__ = ["full_name", "image_findings"]


def full_name(image: str) -> str:
    """An image's name as nodes list it, with registry, repository and tag.

    >>> full_name("webgym-worker:0.1.0")
    'docker.io/library/webgym-worker:0.1.0'
    """
    first, slash, _ = image.partition("/")
    if not slash:
        image = f"docker.io/library/{image}"
    elif not ("." in first or ":" in first or first == "localhost"):
        image = f"docker.io/{image}"
    last = image.rpartition("/")[2]
    return image if ":" in last or "@" in last else f"{image}:latest"


def image_findings(nodes: Sequence[NodeView], pods: Sequence[PodNeed], policy: str) -> list[Finding]:
    """For each kind of pods, whether its image is where the pods go.

    Args:
        nodes: of the cluster.
        pods: wanted.
        policy: of the operator: Always, IfNotPresent or Never.
    """
    return [finding for need in pods if need.count for finding in _image(nodes, need, policy)]


def _image(nodes: Sequence[NodeView], need: PodNeed, policy: str) -> Iterator[Finding]:
    subject = f"{need.role} image"
    image = str(need.spec["containers"][0]["image"])
    allowed = fitting_nodes(nodes, need.spec)
    wanted = full_name(image)
    # Runtimes list some images without the registry that is understood.
    have = [node for node in allowed if wanted in node.images or image in node.images]
    where = f"on {len(have)} of the {len(allowed)} nodes that may run it"
    if not allowed:
        return  # which is told elsewhere
    if len(have) == len(allowed):
        yield good(subject, f"{image} is {where}")
    elif policy != "Never":
        text = f"{image} is {where}; pullPolicy is {policy}, so the others fetch it when a pod comes"
        yield (
            good(subject, text)
            if have
            else warn(
                subject,
                f"{image} is on no node yet: the first pod waits until it is fetched, if the registry has it",
                ""
                if "/" in image
                else f"docker.io has no {image} of ours: set images.registry of the chart, or load it",
            )
        )
    elif have:
        mend = "load it onto the others, or keep pods off them by nodeSelector"
        yield warn(subject, f"{image} is {where}, and pullPolicy is Never: pods elsewhere do not start", mend)
    elif all(node.lists_all_images for node in allowed):
        mend = "load it (kind load docker-image, ctr images import), or set images.pullPolicy of the chart"
        yield bad(subject, f"{image} is on no node, and pullPolicy is Never: no pod starts", mend)
    else:
        yield warn(subject, f"{image} is not among the images that nodes list, and pullPolicy is Never")
