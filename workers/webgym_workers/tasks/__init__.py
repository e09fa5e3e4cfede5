"""Tasks: where an episode starts, what it asks for, and when it is done. Your own is a subclass of ``Task``."""

from webgym_workers.tasks.task import Goal, Outcome, Task

__all__ = ["Goal", "Outcome", "Task"]
