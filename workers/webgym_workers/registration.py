"""Gymnasium ids for every task: ``webgym/miniwob.click-test-v1``."""

from __future__ import annotations

__all__ = ["register_envs"]


def register_envs() -> None:
    """Register one environment id for each task name; once registered, an id is left alone."""
    import gymnasium

    from webgym_workers.tasks.registry import task_names

    for name in task_names():
        env_id = f"webgym/{name}-v1"
        if env_id not in gymnasium.registry:
            gymnasium.register(id=env_id, entry_point="webgym_workers.env:WebEnv", kwargs={"task": name})
