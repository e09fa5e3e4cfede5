"""Where checkpoints and reports live on a cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from webgym.spec.base import Rule, SpecModel
from webgym.spec.quantity import BytesQuantity, Quantity

__all__ = ["Storage"]

_Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]


class Storage(SpecModel):
    """The volume for checkpoints and reports. `webgym run` writes to its output folder instead."""

    size: BytesQuantity = Field(default=Quantity("10Gi"))
    """Size of the volume, as a quantity."""
    storage_class_name: _Name | None = None
    """Storage class of the volume. Left out: the cluster's default."""
    existing_claim: _Name | None = None
    """A PersistentVolumeClaim that exists already, to use instead of making one; it is never deleted."""
    retain: bool = True
    """Whether the volume outlives the run. If not, deleting the run deletes its checkpoints."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="storageClassName is for a new claim; leave it out with existingClaim",
            cel="!has(self.existingClaim) || !has(self.storageClassName)",
            check=lambda self: self.existing_claim is None or self.storage_class_name is None,
            field="storage_class_name",
        ),
    )
