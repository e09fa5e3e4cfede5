"""The policy as ONNX: what it would do, in one file that needs neither PyTorch nor WebGym to run."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from webgym.errors import UsageError
from webgym.schema import Action, ActionKind
from webgym_policy.network import PolicyNetwork, mask_invalid, to_tensors

__all__ = ["INPUTS", "OUTPUTS", "GreedyPolicy", "to_onnx"]

INPUTS = ("dom", "node_mask", "text", "pair", "goal", "action_mask", "frame")
"""Names of the graph's inputs, in order; ``frame`` only where the observation has one. Shapes and dtypes are the
schema's, each with a batch axis of any length before it."""
OUTPUTS = ("action", "flat_action", "q")
_OPSET = 18


class GreedyPolicy(nn.Module):
    """The best valid action of each observation, chosen inside the graph.

    Args:
        network: whose values decide.
    """

    table: Tensor

    def __init__(self, network: PolicyNetwork) -> None:
        super().__init__()
        self.network = network
        schema = network.schema
        self._names = tuple(name for name in INPUTS if name in schema.fields())
        self._wait = schema.encode(Action(ActionKind.WAIT))
        actions = [schema.decode(index) for index in range(schema.actions)]
        self.register_buffer("table", torch.tensor([[int(kind), node, text] for kind, node, text in actions]))

    def forward(self, *observation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Choose.

        Args:
            observation: the arrays that :data:`INPUTS` names, in that order.

        Returns:
            ``action`` int64 (B, 3): kind, node and text, as the environment's action space has them;
            ``flat_action`` int64 (B,): the same as one number; ``q`` float32 (B, actions): the values by flat action,
            -inf where it is not valid. Where nothing is valid, the action is to wait.
        """
        named = dict(zip(self._names, observation, strict=True))
        mask = named["action_mask"]
        q = mask_invalid(self.network(named).float(), mask)
        valid = mask.to(torch.int32).amax(1) > 0
        flat = torch.where(valid, q.argmax(1), torch.full_like(valid, self._wait, dtype=torch.int64))
        return self.table[flat], flat, q


def to_onnx(network: PolicyNetwork, metadata: Mapping[str, str]) -> bytes:
    """The policy as the bytes of an ONNX model.

    Args:
        network: trained.
        metadata: kept in the model, beside the names of the action kinds and the hash of the schema.

    Raises:
        UsageError: a package that this needs is not installed.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"export needs the package {error.name}: pip install 'webgym-platform[export]'"
        ) from None
    schema = network.schema
    policy = GreedyPolicy(network.to("cpu").eval())
    # Two, as a batch of one would be taken for a constant.
    example = {name: array[None].repeat(2, 0) for name, array in schema.empty().items()}
    tensors = to_tensors(example)
    names = [name for name in INPUTS if name in tensors]
    batch = torch.export.Dim("batch", min=1)
    buffer = io.BytesIO()
    level = logging.getLogger("torch.onnx").level
    with warnings.catch_warnings(), torch.no_grad():
        # Of no use to whoever exports: opset conversions, deprecations inside the exporter.
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        try:
            program = torch.onnx.export(
                policy,
                tuple(tensors[name] for name in names),
                input_names=names,
                output_names=list(OUTPUTS),
                opset_version=_OPSET,
                dynamo=True,
                external_data=False,
                dynamic_shapes=[tuple({0: batch} for _ in names)],
                verbose=False,
            )
        finally:
            logging.getLogger("torch.onnx").setLevel(level)
    assert program is not None
    kinds = {str(int(kind)): kind.name for kind in ActionKind}
    program.model.metadata_props.update(
        {"schema": schema.hash, "kinds": json.dumps(kinds), **{k: str(v) for k, v in metadata.items()}}
    )
    program.save(buffer)  # type: ignore[arg-type]
    return buffer.getvalue()
