"""How many browsers there are and where they run."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from webgym.spec.base import Rule, SpecModel, Whole
from webgym.spec.cpus import CpuSet
from webgym.spec.pods import PodSettings
from webgym.spec.quantity import Quantity, QuantityBounds

__all__ = ["Autoscaling", "Workers"]

MOST_WORKERS = 10_000


class Autoscaling(SpecModel):
    """Who decides how many workers there are. The spec itself is never written to."""

    mode: Literal["Manual", "Learner", "External"] = "Manual"
    """Manual: `workers.replicas` is the number. Learner: the operator follows what the learner needs, from
    `min` to `max`, and `workers.replicas` is only where it starts. External: an HPA, KEDA or a person
    scales `workers.replicas` through the scale subresource."""
    min: Annotated[int, Field(ge=0, le=MOST_WORKERS), Whole] = 1
    """Fewest workers. 0 lets a run without work go down to none."""
    max: Annotated[int, Field(ge=1, le=MOST_WORKERS), Whole] = 10
    """Most workers."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="min may not exceed max",
            cel="self.min <= self.max",
            check=lambda self: self.min <= self.max,
            field="min",
        ),
    )


class Workers(PodSettings):
    """The browsers, grouped into workers: pods on a cluster, processes on one machine."""

    replicas: Annotated[int, Field(ge=0, le=MOST_WORKERS), Whole] = 1
    """How many workers. One is right for one machine; this is the number that `kubectl scale` changes."""
    browsers_per_core: Annotated[float, Field(gt=0, le=32)] = 1.5
    """Browsers per CPU core of a worker. Above 1, because browsers wait for pages; more helps when sites
    are slow and hurts when they are not."""
    max_browsers: Annotated[int, Field(ge=1, le=1000), Whole] | None = None
    """Most browsers of a worker, whatever the cores and memory allow. Left out: no such bound."""
    memory_per_browser: Annotated[Quantity, QuantityBounds("64Mi", "256Gi")] = Field(default=Quantity("2Gi"))
    """Memory set aside for each browser, as a quantity: a cluster requests it, one machine starts no more
    browsers than fit, and a browser that takes more is replaced. A headless Chromium takes 200 to 400 MB with
    one simple page: 512Mi is little, and with less it is replaced all the time. Heavy sites need the default."""
    cpu_affinity: CpuSet | None = None
    """Cores that the browsers of a worker may use, as in `0-15,16-31`; each part of the list is kept to
    one process group, so write one part per socket. Left out: all cores."""
    browsers_per_process: Annotated[int, Field(ge=1, le=64), Whole] = 8
    """Browsers driven by one asyncio process. Fewer isolates faults better, more saves memory."""
    autoscaling: Autoscaling = Field(default_factory=Autoscaling)
    """Who decides how many workers there are."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *PodSettings.rules,
        Rule(
            message="with autoscaling.mode External, replicas must lie between autoscaling.min and max",
            cel=(
                "self.autoscaling.mode != 'External' || "
                "(self.autoscaling.min <= self.replicas && self.replicas <= self.autoscaling.max)"
            ),
            check=lambda self: (
                self.autoscaling.mode != "External"
                or self.autoscaling.min <= self.replicas <= self.autoscaling.max
            ),
            field="replicas",
        ),
    )
