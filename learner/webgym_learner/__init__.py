"""The learner: prioritised replay, the DQN update, checkpoints, task scheduling and the run's report."""
