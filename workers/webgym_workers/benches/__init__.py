"""Benchmarks of the browser side, for ``webgym bench``."""
