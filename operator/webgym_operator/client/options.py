"""Options of every command that speaks to a cluster."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_cluster_options"]


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """``--namespace``, ``--context`` and ``--kubeconfig``, as kubectl has them."""
    parser.add_argument(
        "-n", "--namespace", metavar="NAME", help="namespace of the run (default: the context's)"
    )
    parser.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig (default: its current one)"
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="how to reach the cluster (default: KUBECONFIG, then ~/.kube/config, then the pod that this runs in)",
    )
