"""``webgym submit --dry-run``: whether quotas and limit ranges let a run in."""

from __future__ import annotations

from typing import Any

import pytest
from preflight_parts import needs

from webgym_operator.client.preflight.quotas import limit_findings, quota_findings
from webgym_operator.run import Object


def quota(hard: dict[str, str], used: dict[str, str] | None = None) -> Object:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used or {}}}


def limits(**rule: Any) -> Object:
    return {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", **rule}]}}


@pytest.mark.parametrize(
    ("hard", "used", "text"),
    [
        ({"requests.cpu": "100", "pods": "50", "requests.storage": "1Ti"}, {}, "has room"),
        ({"requests.cpu": "4"}, {"requests.cpu": "3"}, "q leaves 1 requests.cpu, and the run asks for 2.6"),
        ({"cpu": "2"}, {}, "q leaves 2 cpu, and the run asks for 2.6 cpu"),
        ({"pods": "2"}, {}, "q leaves 2 pods, and the run asks for 3 pods"),
        ({"persistentvolumeclaims": "1"}, {}, "the run asks for 2 persistentvolumeclaims"),
        ({"requests.storage": "5Gi"}, {}, "the run asks for 1"),
        ({"count/configmaps": "0"}, {}, "the run asks for 1 count/configmaps"),
        ({"limits.cpu": "100"}, {}, "q bounds limits.cpu, of which worker pods say nothing"),
    ],
)
def test_quotas(hard: dict[str, str], used: dict[str, str], text: str) -> None:
    found = quota_findings([quota(hard, used)], [], needs())
    assert any(text in f.text for f in found), found
    assert all((f.level == "ok") == (text == "has room") for f in found)


def test_defaults_of_a_limit_range_fill_in_what_a_quota_wants_said() -> None:
    found = quota_findings([quota({"limits.cpu": "100"})], [limits(default={"cpu": "4"})], needs())
    assert [f.level for f in found] == ["ok"]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"max": {"memory": "100Gi"}}, ""),
        ({"max": {"memory": "1Gi"}}, "l allows 1.0 GiB memory to container worker of a worker pod"),
        ({"max": {"cpu": "1"}}, "l allows 1 cpu to container worker of a worker pod, which asks for 2 cpu"),
        # The server completes such a rule so; a request above the limit that follows is refused.
        (
            {"max": {"cpu": "1"}, "default": {"cpu": "1"}},
            "to container worker of a worker pod, which asks for 2 cpu",
        ),
        ({"max": {"x.y/z": "1"}}, "l bounds x.y/z, for which container worker of a worker pod has no limit"),
        ({"min": {"cpu": "500m"}}, "l wants at least 0.5 cpu of container redis of a redis pod"),
        ({"type": "Pod", "max": {"memory": "1Gi"}}, "l allows 1.0 GiB memory to a worker pod"),
        (
            {"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}},
            "to volume demo-00000000, which asks for 10.0",
        ),
        ({"maxLimitRequestRatio": {"memory": "1"}}, "container folder of a learner pod has more"),
    ],
)
def test_limit_ranges(rule: dict[str, Any], text: str) -> None:
    found = limit_findings([limits(**rule)], needs())
    if not text:
        assert [f.level for f in found] == ["ok"]
    else:
        assert any(text in f.text and f.level == "bad" for f in found), found
