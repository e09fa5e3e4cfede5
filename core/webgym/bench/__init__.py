"""Benchmarks: what a part measures, as one JSON object for machines, a table and a plot for people.

A part brings a benchmark by an entry point of the group ``webgym.benches``; ``webgym bench NAME`` runs it.
"""

from webgym.bench.arguments import check_counts
from webgym.bench.result import BENCH_GROUP, Bench, BenchResult, Column

__all__ = ["BENCH_GROUP", "Bench", "BenchResult", "Column", "check_counts"]
