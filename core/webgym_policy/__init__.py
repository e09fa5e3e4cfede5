"""The policy network and its arithmetic in PyTorch, shared by workers (acting) and the learner (training)."""
