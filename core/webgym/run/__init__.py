"""`webgym run` on one machine: broker, workers and learner as processes, watched, drained, reported on."""
