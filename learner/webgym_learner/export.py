"""``webgym export``: the policy of a checkpoint as an ONNX model, for use where there is neither WebGym nor PyTorch."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym.errors import CheckpointError, OutputError, ProtocolError

if TYPE_CHECKING:
    from webgym_learner.checkpoint import Checkpoint
    from webgym_policy.network import PolicyNetwork

__all__ = ["ExportCommand", "policy_of"]


class ExportCommand:
    """Export a policy."""

    name = "export"
    help = "write the policy of a checkpoint as an ONNX model that chooses actions by itself"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "source", type=Path, metavar="CHECKPOINT_OR_RUN_DIR", help="a checkpoint, or the folder of a run"
        )
        parser.add_argument(
            "--checkpoint",
            choices=("best", "latest"),
            default="best",
            help="which one of a run (default: best, or the latest where none was judged)",
        )
        parser.add_argument(
            "--out",
            type=Path,
            default=Path("policy.onnx"),
            metavar="FILE",
            help="the model (default: policy.onnx); an existing one is replaced",
        )
        parser.add_argument(
            "--json", action="store_true", help="describe the model by one JSON object on stdout"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Write the model."""
        from webgym.rundir import write_atomic
        from webgym_learner.weights import Weights
        from webgym_policy.portable import INPUTS, OUTPUTS, to_onnx

        if args.out.is_dir():
            raise OutputError(
                f"--out: {args.out} is a folder; name a file, such as {args.out / 'policy.onnx'}"
            )
        found = _checkpoint(args.source, args.checkpoint)
        network = policy_of(found)
        weights = Weights.of(found, args.checkpoint)
        metadata = {
            "steps": str(weights.steps),
            "updates": str(weights.updates),
            "checkpoint": found.path.name,
        }
        model = to_onnx(network, metadata)
        try:
            write_atomic(args.out, model)
        except OSError as error:
            raise OutputError(f"--out: {args.out} cannot be written: {error.strerror or error}") from None
        schema = network.schema
        if args.json:
            fields = schema.fields()
            inputs = {
                name: {"dtype": fields[name].dtype.name, "shape": ["batch", *fields[name].shape]}
                for name in INPUTS
                if name in fields
            }
            told: dict[str, Any] = {
                "file": str(args.out), "checkpoint": str(found.path), "schema": schema.hash,
                "bytes": len(model), "inputs": inputs, "outputs": list(OUTPUTS),
            }  # fmt: skip
            print(json.dumps(told))
        else:
            print(f"{args.out}: the policy of {found.path} after {weights.updates} updates")
        return 0


def policy_of(found: Checkpoint) -> PolicyNetwork:
    """The network that acted when a checkpoint was written, with its parameters.

    Args:
        found: loaded with its group ``acting``.

    Raises:
        CheckpointError: it does not say what network it is of, or contradicts itself.
    """
    from webgym_policy.description import described_network
    from webgym_policy.network import load_parameters

    description = found.state.get("network")
    if not isinstance(description, dict):
        description = _description_of_run(found)
    try:
        network = described_network(description)
        load_parameters(network, found.arrays["acting"])
    except ProtocolError as error:
        raise CheckpointError(f"the checkpoint {found.path} cannot be exported: {error}") from None
    if network.schema.hash != found.schema:
        raise CheckpointError(
            f"the checkpoint {found.path} has schema {found.schema}, but describes {network.schema.hash}"
        )
    return network


def _checkpoint(source: Path, which: str) -> Checkpoint:
    from webgym.rundir import RunDirectory
    from webgym_learner.checkpoint import CheckpointStore, load_checkpoint

    if not source.exists():
        raise CheckpointError(f"{source} does not exist: name a checkpoint or the folder of a run")
    if not (source / "run.yaml").is_file():
        return load_checkpoint(source, groups=["acting"])
    directory = RunDirectory.open(source, "export")
    store = CheckpointStore(directory.checkpoints, _schema_hash(directory.manifest))
    if which == "best" and store.note() is not None:
        try:
            return store.best(groups=["acting"])
        except CheckpointError as error:
            print(f"webgym: best: {error}; the latest is exported in its stead", file=sys.stderr)
    return store.latest(groups=["acting"])


def _schema_hash(manifest: Path) -> str:
    from webgym.manifest import load_manifest
    from webgym.schema import observation_schema

    return observation_schema(load_manifest(manifest, []).spec.observation).hash


def _description_of_run(found: Checkpoint) -> dict[str, Any]:
    """From the manifest of the run that the checkpoint lies in: older ones do not describe themselves."""
    from webgym.manifest import load_manifest
    from webgym.schema import observation_schema
    from webgym_learner.blueprint import network_of
    from webgym_policy.description import description_of

    manifest = found.path.resolve().parent.parent / "run.yaml"
    if not manifest.is_file():
        raise CheckpointError(
            f"the checkpoint {found.path} does not say what network it is of, and {manifest} is not there:"
            " export it where it lies in the folder of its run"
        )
    spec = load_manifest(manifest, []).spec
    return description_of(network_of(spec, observation_schema(spec.observation), spec.seed))
