"""Benchmarks of what the parts of a run say to each other: they need a server and no browser."""
