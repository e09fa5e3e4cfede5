"""Browser workers: Chromium processes, page observation, tasks, the environment and the acting loop.

Importing this package registers its tasks with Gymnasium: ``gymnasium.make("webgym/miniwob.click-test-v1")``.
"""

from webgym_workers.registration import register_envs

register_envs()
