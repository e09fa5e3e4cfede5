"""The Q-network over (kind, node, text): one encoder for all nodes, a pooled context, cheap pair scores.

What the shape buys. A flat network has to learn the same thing once per position on the page; a shared
encoder learns it once, and a pooled context (mean and max over the nodes, the goal, the texts) mixed back
into every node lets one node know of the others. A text action ties a text to a node by a bilinear score plus
a small MLP over how the text fits the node, whose first layer is factorised (pair + node + text), so that
nothing of shape (batch, nodes, texts, hidden) is ever made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from webgym.errors import ProtocolError
from webgym.schema import GLOBAL_KINDS, NODE_KINDS, TEXT_KINDS, Schema
from webgym_policy.stem import FrameStem

__all__ = [
    "PolicyNetwork",
    "infer",
    "load_parameters",
    "mask_invalid",
    "parameters_of",
    "to_tensors",
    "trim_nodes",
]

_HEAD_SCALE = 0.1
"""Heads start small: first values near zero keep early bootstrap targets from chasing noise."""


class PolicyNetwork(nn.Module):
    """Q values of every flat action of a schema.

    Args:
        schema: sizes of observation and action space.
        hidden_size: width of node embeddings and context.
        dueling: Q = V + A - mean of A over the valid actions (Wang et al. 2016, with the mean restricted to
            what can be done); otherwise Q = A.
        seed: initial weights are a function of it alone; the global random state is left as it was.
        match_size: width of the bilinear score.
        fit_size: width of the MLP over how a text fits a node.
    """

    def __init__(
        self,
        schema: Schema,
        hidden_size: int = 64,
        dueling: bool = True,
        seed: int = 0,
        *,
        match_size: int = 16,
        fit_size: int = 8,
    ) -> None:
        super().__init__()
        self.schema = schema
        self.hidden_size = hidden_size
        self.dueling = dueling
        self.match_size = match_size
        self.fit_size = fit_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._build()

    def _build(self) -> None:
        s, h, r, f = self.schema, self.hidden_size, self.match_size, self.fit_size
        node_kinds, text_kinds, global_kinds = len(NODE_KINDS), len(TEXT_KINDS), len(GLOBAL_KINDS)
        self.node_in = nn.Linear(s.node_features + s.pair_features + 1, h, bias=False)
        self.node_hidden = nn.Linear(h, h, bias=False)
        self.text_in = nn.Linear(s.text_features + s.pair_features, h)
        context_inputs = 3 * h + s.goal_features
        if s.frame is not None:
            self.stem: FrameStem | None = FrameStem(s.frame, h)
            context_inputs += h
        else:
            self.stem = None
        self.context = nn.Linear(context_inputs, h)
        self.mix_node = nn.Linear(h, h, bias=False)
        self.mix_context = nn.Linear(h, h)
        self.page = nn.Linear(3 * h, h)
        # One matrix product each for everything that is read off a node, a text, the page.
        self._node_split = (node_kinds, text_kinds, text_kinds * r, f)
        self._text_split = (text_kinds, r, f)
        self.node_head = nn.Linear(h, sum(self._node_split))
        self.text_head = nn.Linear(h, sum(self._text_split))
        self.pair_in = nn.Linear(s.pair_features, f, bias=False)
        self.pair_out = nn.Linear(f, text_kinds, bias=False)
        self.page_head = nn.Linear(h, global_kinds + 1)
        with torch.no_grad():
            self.page_head.weight.mul_(_HEAD_SCALE)
            self.pair_out.weight.mul_(_HEAD_SCALE)
            self.node_head.weight[: node_kinds + text_kinds].mul_(_HEAD_SCALE)
            self.text_head.weight[:text_kinds].mul_(_HEAD_SCALE)
            # The bilinear score is a product of two of these rows.
            self.node_head.weight[node_kinds + text_kinds : -f].mul_(_HEAD_SCALE**0.5)
            self.text_head.weight[text_kinds:-f].mul_(_HEAD_SCALE**0.5)

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Q values, float (B, actions), in the schema's flat order; invalid actions are *not* masked.

        Args:
            observation: the schema's fields with a batch axis; masks of any dtype. ``action_mask`` may be
                left out: the dueling mean is then over all actions. Nodes at the end may be left out (see
                :func:`trim_nodes`): the values of their actions mean nothing.
        """
        dom, text, pair = observation["dom"], observation["text"], observation["pair"]
        mask = observation["node_mask"].to(dom.dtype).unsqueeze(-1)
        count = mask.sum(1).clamp_min(1.0)

        # The rows of nodes that are not there are 0 here and stay 0, layer by layer, as no layer adds
        # anything to them: the mask itself is the input that stands for a bias. So pooling needs no mask.
        # All nodes are rows of one matrix, because a linear layer over three axes hands out a view, and
        # ReLU in place on a view costs two copies in the backward pass.
        rows = (torch.cat((dom, _best_over_texts(pair), torch.ones_like(mask)), -1) * mask).flatten(0, 1)
        rows = self.node_hidden(self.node_in(rows).relu_()).relu_()
        node = rows.view(*dom.shape[:2], -1)
        words = (
            self.text_in(torch.cat((text, pair.amax(1)), -1).flatten(0, 1)).relu_().view(*text.shape[:2], -1)
        )
        inputs = [*_pool(node, count), words.mean(1), observation["goal"]]
        if self.stem is not None:
            inputs.append(self.stem(observation["frame"]))
        context = self.context(torch.cat(inputs, -1)).relu_()
        mixed = torch.addcmul(
            self.mix_node(rows).view_as(node), mask, self.mix_context(context).unsqueeze(1)
        ).relu_()
        node = node + mixed
        page = self.page(torch.cat((*_pool(node, count), context), -1)).relu_()

        on_node, node_bias, query, node_fit = self.node_head(node).split(self._node_split, -1)
        text_bias, key, text_fit = self.text_head(words).split(self._text_split, -1)
        on_text = self._bilinear(query, key) + self._fit(pair, node_fit, text_fit)
        # In place, as the product needs neither sum for its gradient.
        on_text += node_bias.transpose(1, 2).unsqueeze(3)
        on_text += text_bias.transpose(1, 2).unsqueeze(2)
        on_page = self.page_head(page)

        on_node, missing = on_node.transpose(1, 2), self.schema.nodes - dom.shape[1]
        if missing:
            on_node, on_text = F.pad(on_node, (0, missing)), F.pad(on_text, (0, 0, 0, missing))
        advantage = torch.cat((on_node.flatten(1), on_text.flatten(1), on_page[:, :-1]), -1)
        if not self.dueling:
            return advantage
        offset: Tensor = on_page[:, -1:] - _valid_mean(advantage, observation.get("action_mask"))
        return advantage + offset

    def _bilinear(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores (B, kinds, N, T) of every node's queries (B, N, kinds * r) against every text's key (B, T,
        r)."""
        (batch, nodes), (texts, r) = query.shape[:2], key.shape[1:]
        kinds = len(TEXT_KINDS)
        query = query.reshape(batch, nodes, kinds, r).transpose(1, 2).reshape(batch, kinds * nodes, r)
        return torch.bmm(query, key.transpose(1, 2)).view(batch, kinds, nodes, texts)

    def _fit(self, pair: Tensor, node_fit: Tensor, text_fit: Tensor) -> Tensor:
        """An MLP over (pair, node, text) for every node and text: scores (B, kinds, N, T).

        One row a node instead of one row a pair: the weights are laid out block by block over the texts. A
        processor multiplies the wider matrices several times faster than it walks the narrow ones, zeros
        included.
        """
        (batch, nodes, texts), kinds = pair.shape[:3], len(TEXT_KINDS)
        each = torch.eye(texts, dtype=pair.dtype, device=pair.device)
        spread = torch.eye(self.fit_size, dtype=pair.dtype, device=pair.device).repeat(texts, 1)
        weight = torch.cat((torch.kron(each, self.pair_in.weight), spread), 1)
        hidden = F.linear(torch.cat((pair.flatten(2), node_fit), -1), weight)
        hidden = (hidden + text_fit.reshape(batch, 1, -1)).relu_()
        # (kinds * texts) rows, so that the result needs one transposition only.
        weight = torch.einsum("kr,tu->ktur", self.pair_out.weight, each).reshape(kinds * texts, -1)
        return F.linear(hidden, weight).view(batch, nodes, kinds, texts).transpose(1, 2)


def _pool(node: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and max over nodes, (B, H) each; those that are not there are 0, and none is below that (ReLU)."""
    if node.requires_grad:
        total, best = _SumMax.apply(node)  # type: ignore[no-untyped-call]
    else:
        total, best = node.sum(1), node.amax(1)
    return total / count, best


class _SumMax(torch.autograd.Function):
    """``sum(1), amax(1)`` with their gradient in one go, at a third of the cost: the passes over memory
    count."""

    @staticmethod
    def forward(ctx: Any, node: Tensor) -> tuple[Tensor, Tensor]:
        best = node.amax(1)
        ctx.save_for_backward(node, best)
        return node.sum(1), best

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        of_sum, of_best = gradients
        node, best = ctx.saved_tensors
        # -1 below the maximum, 0 at it; those that tie share.
        losers = (node - best.unsqueeze(1)).sign_()
        share = of_best / (losers.sum(1) + node.shape[1])
        return torch.addcmul((of_sum + share).unsqueeze(1), losers, share.unsqueeze(1))


def _best_over_texts(pair: Tensor) -> Tensor:
    """Max of (B, N, T, P) over the texts; with the texts outermost, whole rows are compared at a time."""
    return pair.permute(2, 0, 1, 3).contiguous().amax(0)


def _valid_mean(advantage: Tensor, action_mask: Tensor | None) -> Tensor:
    """Mean over the valid actions, (B, 1); 0, not NaN, where no action is valid."""
    if action_mask is None:
        return advantage.mean(-1, keepdim=True)
    valid = action_mask.to(advantage.dtype)
    return (advantage * valid).sum(-1, keepdim=True) / valid.sum(-1, keepdim=True).clamp_min(1.0)


def mask_invalid(q: Tensor, action_mask: Tensor) -> Tensor:
    """``q`` (B, actions) with -inf where ``action_mask`` is 0."""
    return q.masked_fill(action_mask == 0, -torch.inf)


def trim_nodes(batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The batch without the nodes at the end that none of its pages has.

    Key nodes come first and most pages have few, so this often halves the work; no valid action's value changes.
    """
    present = np.flatnonzero(batch["node_mask"].any(axis=0))
    nodes = int(present[-1]) + 1 if present.size else 1
    return {k: v[:, :nodes] if k in ("dom", "node_mask", "pair") else v for k, v in batch.items()}


def to_tensors(
    batch: Mapping[str, NDArray[Any]], device: torch.device | None = None, non_blocking: bool = False
) -> dict[str, Tensor]:
    """Tensors of a batch of observations, sharing memory with it on the CPU; float16 becomes float32."""
    tensors = {}
    for name, array in batch.items():
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if device is not None and device.type != "cpu":
            tensor = tensor.to(device, non_blocking=non_blocking)
        tensors[name] = tensor.float() if tensor.dtype == torch.float16 else tensor
    return tensors


@torch.inference_mode()
def infer(network: PolicyNetwork, batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """Q values of a batch of observations, float32 (B, actions), invalid actions not masked."""
    device = next(network.parameters()).device
    q: NDArray[np.float32] = network(to_tensors(trim_nodes(batch), device)).float().cpu().numpy()
    return q


def parameters_of(module: nn.Module) -> dict[str, NDArray[np.float32]]:
    """A copy of a module's parameters, float32 by name, as the parameter store and checkpoints carry them."""
    return {
        name: tensor.detach().to("cpu", torch.float32, copy=True).numpy()
        for name, tensor in module.state_dict().items()
    }


def load_parameters(module: nn.Module, state: Mapping[str, NDArray[Any]]) -> None:
    """Copies parameters into a module, all or nothing.

    Raises:
        ProtocolError: a parameter is missing, unknown, of another shape, or not finite.
    """
    own = module.state_dict()
    if own.keys() != state.keys():
        odd = sorted(own.keys() ^ state.keys())
        raise ProtocolError(f"the parameters do not fit this network: {', '.join(odd[:4])} on one side only")
    for name, tensor in own.items():
        if tuple(tensor.shape) != tuple(state[name].shape):
            raise ProtocolError(
                f"the parameter {name} has shape {tuple(state[name].shape)}, this network's has"
                f" {tuple(tensor.shape)}; was policy.hiddenSize changed?"
            )
        if not np.isfinite(state[name]).all():
            raise ProtocolError(f"the parameter {name} holds values that are not finite")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(torch.from_numpy(np.array(state[name], dtype=np.float32)))
