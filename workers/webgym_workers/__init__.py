"""Browser workers: Chromium processes, page observation, tasks, the environment and the acting loop."""
