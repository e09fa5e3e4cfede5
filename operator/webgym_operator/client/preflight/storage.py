"""Whether a run gets its volumes, and whether what it refers to by name is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webgym.spec import RunManifest
from webgym_operator.client.preflight.estimate import amount_text, amounts
from webgym_operator.client.preflight.finding import Finding, bad, good, warn

__all__ = ["claim_finding", "references", "storage_findings"]

_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def storage_findings(
    claims: Sequence[Mapping[str, Any]],
    classes: Sequence[Mapping[str, Any]],
    volumes: Sequence[Mapping[str, Any]] | None,
) -> list[Finding]:
    """Whether each volume that is to be made can be.

    Args:
        claims: PersistentVolumeClaims of the run.
        classes: StorageClasses of the cluster.
        volumes: PersistentVolumes of the cluster; None where they are not known.
    """
    return [_volume(claim, classes, volumes) for claim in claims]


def _volume(
    claim: Mapping[str, Any],
    classes: Sequence[Mapping[str, Any]],
    volumes: Sequence[Mapping[str, Any]] | None,
) -> Finding:
    spec = claim["spec"]
    size = amounts(spec["resources"]["requests"])["storage"]
    role = claim["metadata"]["labels"].get("webgym.io/role", "")
    subject, what = f"{role} volume", amount_text("storage", size)
    names = [one["metadata"]["name"] for one in classes]
    wanted = spec.get("storageClassName")
    if wanted is None:
        defaults = [
            one["metadata"]["name"]
            for one in classes
            if (one["metadata"].get("annotations") or {}).get(_DEFAULT) == "true"
        ]
        if defaults:
            return good(subject, f"{what} of the default storage class {defaults[0]}")
    elif wanted in names:
        return good(subject, f"{what} of storage class {wanted}")
    fitting = [
        volume["metadata"]["name"]
        for volume in volumes or ()
        if (volume.get("status") or {}).get("phase") == "Available"
        and (volume["spec"].get("storageClassName") or None) == wanted
        and amounts(volume["spec"].get("capacity") or {}).get("storage", 0) >= size
        and "ReadWriteOnce" in (volume["spec"].get("accessModes") or ())
    ]
    if fitting:
        return good(subject, f"{what}: the volume {fitting[0]} is free")
    listed = f"there is {', '.join(names)}" if names else "there is none"
    mend = "name one in spec.storage.storageClassName, or a volume of your own in storage.existingClaim"
    if role == "redis":
        mend = "name one in spec.storage.storageClassName, or set runs.redisPersistent of the chart to false"
    if wanted is None:
        text = f"the cluster has no default storage class for {what} ({listed})"
    else:
        text = f"there is no storage class {wanted} for {what} ({listed})"
    return bad(subject, text, mend) if volumes is not None else warn(subject, text, mend)


def claim_finding(claim: Mapping[str, Any] | None, name: str) -> Finding:
    """Whether ``storage.existingClaim`` can be used.

    Args:
        claim: as the server has it; None where there is none of that name.
        name: of the claim.
    """
    subject = "learner volume"
    if claim is None:
        mend = "create it, or leave spec.storage.existingClaim out"
        return bad(subject, f"there is no PersistentVolumeClaim {name} in the namespace", mend)
    phase = (claim.get("status") or {}).get("phase", "Pending")
    modes = claim["spec"].get("accessModes") or ()
    if not {"ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"} & set(modes):
        return bad(
            subject, f"the claim {name} cannot be written: it is {', '.join(modes)}", "give it ReadWriteOnce"
        )
    if phase == "Lost":
        return bad(
            subject, f"the claim {name} has lost its volume", "name another in spec.storage.existingClaim"
        )
    return good(subject, f"the claim {name}, {phase}")


def references(manifest: RunManifest, pull_secrets: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Secrets and ConfigMaps that pods need to start: kind, name, and where the name is written."""
    spec = manifest.spec
    for part, settings in (("workers", spec.workers), ("learner", spec.learner)):
        for at, variable in enumerate(settings.env):
            source = variable.value_from
            if source is None:
                continue
            for kind, ref in (("Secret", source.secret_key_ref), ("ConfigMap", source.config_map_key_ref)):
                if ref is not None and not ref.optional:
                    yield kind, ref.name, f"spec.{part}.env[{at}]"
    password = spec.redis.password_from
    if password is not None and password.secret_key_ref is not None:
        yield "Secret", password.secret_key_ref.name, "spec.redis.passwordFrom"
    if spec.redis.tls is not None and spec.redis.tls.secret_name is not None:
        yield "Secret", spec.redis.tls.secret_name, "spec.redis.tls.secretName"
    for name in pull_secrets:
        yield "Secret", name, "images.pullSecrets of the chart"
