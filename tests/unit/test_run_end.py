"""Runs that are over: what ends them, what is released then and what is kept."""

from __future__ import annotations

from typing import Any

import pytest
from operator_cluster import START, Cluster, running, workers

from webgym_operator.plan import DeleteRun


def finished(spec: dict[str, Any] | None = None) -> Cluster:
    cluster = running(spec)
    cluster.say("done", success=0.99, steps=1000)
    cluster.settle()
    assert cluster.condition("Succeeded") == ("Unknown", "Finishing")
    cluster.end("demo-learner-0-0", 0)
    cluster.reconcile()
    return cluster


def test_the_verdict_ends_the_run_and_releases_all_but_results_and_logs() -> None:
    cluster = finished(workers(3))
    assert cluster.condition("Succeeded") == ("True", "Completed")
    assert "0.99" in cluster.message("Succeeded")
    cluster.figures = None
    cluster.settle()
    assert cluster.names("learner") == ["demo-learner-0-0"]
    assert cluster.names("worker") == []
    assert cluster.kinds() == {"Pod", "ConfigMap", "PersistentVolumeClaim"}
    status = dict(cluster.body["status"])
    assert (status["success"], status["steps"]) == (0.99, 1000)
    cluster.now += 1000
    cluster.reconcile()
    assert cluster.body["status"] == status


def test_a_learner_that_ended_before_its_verdict_was_read_is_not_started_again() -> None:
    cluster = running()
    cluster.say("evaluate")
    cluster.reconcile()
    cluster.end("demo-learner-0-0", 0)
    plan = cluster.reconcile()
    assert cluster.condition("Progressing")[1] != "Restarting"
    assert plan.wake_at is not None
    assert plan.wake_at <= cluster.now + 1
    cluster.say("done", success=1.0)
    cluster.settle()
    assert cluster.condition("Succeeded") == ("True", "Completed")
    assert cluster.names("learner") == ["demo-learner-0-0"]


def test_workers_are_released_while_the_last_files_are_written() -> None:
    cluster = running(workers(3))
    cluster.say("done")
    cluster.settle()
    assert cluster.names("worker") == []
    assert cluster.names("learner") == ["demo-learner-0-0"]


def test_a_finished_run_removes_itself_after_its_time() -> None:
    cluster = finished({"ttlSecondsAfterFinished": 100})
    cluster.settle()
    assert cluster.plan().wake_at == pytest.approx(cluster.now + 100, abs=2)
    cluster.now += 101
    assert cluster.plan().actions == [DeleteRun()]


def test_a_finished_run_does_not_start_again_when_its_spec_changes() -> None:
    cluster = finished()
    cluster.settle()
    cluster.change(stop={"seconds": 5000})
    cluster.settle()
    assert cluster.condition("Succeeded") == ("True", "Completed")
    assert cluster.names("worker") == []


def test_the_deadline_ends_the_run() -> None:
    cluster = running({"activeDeadlineSeconds": 600, "stop": {"seconds": 500}})
    cluster.now = START + 599
    cluster.settle()
    assert cluster.condition("Succeeded")[0] == "Unknown"
    assert cluster.plan().wake_at == pytest.approx(START + 602, abs=3)
    cluster.now = START + 603
    cluster.settle()
    assert cluster.condition("Succeeded") == ("False", "DeadlineExceeded")
