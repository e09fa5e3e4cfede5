"""The DQN update: double, dueling (in the network), n-step (in the transitions), importance-weighted.

Mnih et al. 2015; van Hasselt et al. 2016 (double); Schaul et al. 2016 (weights). The transitions bring their
own discounts, so termination, truncation and n-step windows need nothing here.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F  # noqa: N812

from webgym.errors import CheckpointError, ExitCode, ProtocolError, RunError
from webgym_policy.network import PolicyNetwork, load_parameters, parameters_of

from .compiling import compiled, wants_compiling
from .gradient import SharedGradient
from .group import Group
from .replay import ReplayBatch
from .transfer import MovedBatch, Transfer

__all__ = ["DQN", "DQNConfig", "DivergedError", "UpdateResult", "choose_device", "choose_precision"]


class DivergedError(RunError):
    """The loss or a gradient is not finite. The weights are those of before the update."""

    exit_code = ExitCode.DIVERGED


@dataclass(frozen=True)
class DQNConfig:
    """Hyperparameters of the update; the defaults are the reference ones."""

    learning_rate: float = 3e-4
    target_update_interval: int = 200
    """Updates between two copies of the online network into the target network."""
    double: bool = True
    """Choose the next action by the online network, value it by the target network."""
    gradient_clip: float = 10.0
    """Largest norm of the gradient; 0 does not clip."""
    huber: bool = True
    """Huber loss (linear beyond an error of 1) instead of the squared one."""
    adam_epsilon: float = 1e-8
    average_decay: float = 0.0
    """Decay per update of a moving average of the weights, which then acts and is evaluated; 0 is off."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    precision: str = "auto"
    """auto, float32, bfloat16, float16. auto: float32 on a CPU, else bfloat16, else float16 where it must."""
    compile: str = "off"
    """on, off, auto: whether forward and backward pass are compiled (torch.compile)."""


@dataclass(frozen=True)
class UpdateResult:
    """What one update saw."""

    loss: float
    td_errors: NDArray[np.float32]
    """|TD error| of each transition, (B,): the new priorities."""
    q_mean: float
    """Mean Q value of the actions taken."""
    grad_norm: float
    """Norm of the gradient before clipping; not finite only where a float16 step was skipped to rescale."""


def choose_device(name: str) -> torch.device:
    """The device of a manifest's ``learner.device``.

    Raises:
        RunError: a GPU is asked for and there is none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise RunError(f"learner.device is {name} but PyTorch sees no GPU here; use auto or cpu")
    return torch.device(name)


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The dtype that matrix products run in."""
    if name == "auto":
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    try:
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]
    except KeyError:
        raise RunError(
            f"learner.precision is {name}; it is one of auto, float32, bfloat16, float16"
        ) from None


class DQN:
    """Trains a network by double DQN.

    Args:
        network: trained in place; moved to the device.
        config: hyperparameters.

    Raises:
        RunError: the device or the precision is not to be had here.
    """

    def __init__(self, network: PolicyNetwork, config: DQNConfig | None = None) -> None:
        self.config = config if config is not None else DQNConfig()
        self.device = choose_device(self.config.device)
        self.precision = choose_precision(self.config.precision, self.device)
        self.online = network.to(self.device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.average = copy.deepcopy(self.target) if self.config.average_decay > 0 else None
        self.updates = 0
        """Updates made."""
        self._parameters: list[torch.Tensor] = list(self.online.parameters())
        self._optimizer = torch.optim.Adam(
            self._parameters,
            lr=self.config.learning_rate,
            eps=self.config.adam_epsilon,
            # One kernel for all parameters: with small ones the loop over them would cost more than the
            # arithmetic.
            fused=True,
        )
        # float16 gradients underflow without scaling; bfloat16 has float32's range.
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == torch.float16)
        self.transfer = Transfer(self.device)
        # The same parameters, perhaps by another way.
        compiles = wants_compiling(self.config.compile, self.device)
        self._online: Any = compiled(self.online, trains=True) if compiles else self.online
        self._target: Any = compiled(self.target, trains=False) if compiles else self.target
        self._group: Group | None = None
        self._shared: SharedGradient | None = None

    @property
    def acting(self) -> PolicyNetwork:
        """The network to publish and evaluate: the average where there is one, else the online network."""
        return self.online if self.average is None else self.average

    def join(self, group: Group) -> None:
        """From now on make each update together with others, beginning where rank 0 is.

        Raises:
            PeerLost: another learner is gone.
        """
        saved = self.state_dict()
        has_moments = bool(saved["arrays"]["optimizer"])
        head = torch.tensor([self.updates, has_moments], dtype=torch.int64)
        group.share([head])
        self.updates = int(head[0])
        if head[1] and not has_moments:
            for parameter in self._parameters:
                self._optimizer.state[parameter] = {
                    "step": torch.zeros((), device=self.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        networks = [n for n in (self.online, self.target, self.average) if n is not None]
        tensors = [tensor for network in networks for tensor in network.state_dict().values()]
        if head[1]:
            moments = (self._optimizer.state[parameter] for parameter in self._parameters)
            tensors += [entry[key] for entry in moments for key in ("step", "exp_avg", "exp_avg_sq")]
        group.share(tensors)
        scaler = self._scaler.state_dict()
        if scaler:
            scale = torch.tensor([scaler["scale"], scaler["_growth_tracker"]], dtype=torch.float64)
            group.share([scale])
            scaler |= {"scale": float(scale[0]), "_growth_tracker": int(scale[1])}
            self._scaler.load_state_dict(scaler)
        self._group = group
        self._shared = SharedGradient(group, self._parameters)

    def update(
        self,
        batch: ReplayBatch,
        moved: MovedBatch | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> UpdateResult:
        """One gradient step; of several learners each calls it with its part of the batch.

        Args:
            batch: drawn from a replay.
            moved: the same, if it is on its way to the device already.
            meanwhile: called once while a GPU computes; a CPU has nothing to do meanwhile.

        Raises:
            DivergedError: the loss or the gradient is not finite, of whichever learner; the weights are unchanged.
            PeerLost: another learner is gone; the weights are unchanged.
        """
        group, shared = self._group, self._shared
        scales = None if group is None else group.scales(batch.scale)
        if moved is None:
            moved = self.transfer.begin(batch)
        self.transfer.finish(moved)
        columns = moved.columns
        with self._autocast():
            goal = self._goals(moved)
            q = self._online(moved.obs).float()
            taken = q.gather(1, columns["action"].unsqueeze(1)).squeeze(1)
            if self.config.huber:
                losses = F.smooth_l1_loss(taken, goal, reduction="none")
            else:
                losses = F.mse_loss(taken, goal, reduction="none")
            loss = (losses * columns["weight"]).mean()
        errors = (taken.detach() - goal).abs()
        figures = torch.stack((loss.detach(), taken.detach().mean()))
        if shared is None or scales is None:
            self._optimizer.zero_grad(set_to_none=True)
            self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        else:
            shared.clear()
            self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            figures = shared.average(figures, errors, batch.scale / scales.largest())
        self._scaler.unscale_(self._optimizer)
        clip = self.config.gradient_clip
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, clip if clip > 0 else float("inf"))
        if meanwhile is not None:
            meanwhile()
        # One transfer for all that is read back: each costs a wait for the device.
        report = torch.cat((errors, figures, norm.detach().view(1))).cpu().numpy()
        if not np.isfinite(report[:-1]).all():
            raise DivergedError(self._diverged("loss"))
        if not np.isfinite(report[-1]) and not self._scaler.is_enabled():
            raise DivergedError(self._diverged("gradient"))
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self.updates += 1
        if self.updates % self.config.target_update_interval == 0:
            _copy(self.online, self.target)
        if self.average is not None:
            self._update_average(self.average)
        return UpdateResult(
            loss=float(report[-3]),
            td_errors=report[:-3],
            q_mean=float(report[-2]),
            grad_norm=float(report[-1]),
        )

    def check(self) -> None:
        """Make sure that the weights are fit to be kept: an optimizer step may have carried them beyond all bounds,
        which the loss of the next update would show too late.

        Raises:
            DivergedError: one is not finite.
        """
        networks = [network for network in (self.online, self.average) if network is not None]
        for parameter in (parameter for network in networks for parameter in network.parameters()):
            if not bool(torch.isfinite(parameter).all()):
                raise DivergedError(self._diverged("network"))

    def state_dict(self) -> dict[str, Any]:
        """All that resuming needs: ``arrays`` (nested, by name) and ``state`` (fit for JSON)."""
        arrays: dict[str, Any] = {
            "online": parameters_of(self.online),
            "target": parameters_of(self.target),
            "optimizer": {},
        }
        if self.average is not None:
            arrays["average"] = parameters_of(self.average)
        for name, parameter in self.online.named_parameters():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                arrays["optimizer"][f"{name}.{key}"] = value.detach().cpu().numpy().copy()
        arrays["random"] = {"torch": torch.get_rng_state().numpy().copy()}
        state = {"updates": self.updates, "scaler": self._scaler.state_dict()}
        return {"arrays": arrays, "state": state}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continues from :meth:`state_dict`; an average that was not saved starts at the online network.

        Raises:
            CheckpointError: something is missing or does not fit this network.
        """
        try:
            arrays, state = saved["arrays"], saved["state"]
            moments = self._moments(arrays["optimizer"])
            updates, scaler = int(state["updates"]), dict(state["scaler"])
            load_parameters(self.online, arrays["online"])
            load_parameters(self.target, arrays["target"])
            if self.average is not None:
                load_parameters(self.average, arrays.get("average", arrays["online"]))
            torch.set_rng_state(torch.from_numpy(np.array(arrays["random"]["torch"], dtype=np.uint8)))
            if scaler:
                self._scaler.load_state_dict(scaler)
        except (KeyError, TypeError, ValueError, RuntimeError, ProtocolError) as error:
            raise CheckpointError(f"the learner's state cannot be restored: {error}") from None
        self._optimizer.state.clear()
        self._optimizer.state.update(moments)
        self.updates = updates

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.precision == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.precision)

    def _goals(self, moved: MovedBatch) -> torch.Tensor:
        """What the values of the actions taken should have been, (B,)."""
        reward, discount = moved.columns["reward"], moved.columns["discount"]
        if moved.future is None:
            return self._targets(moved.next_obs, reward, discount)
        goal = reward.clone()
        if len(moved.future):
            goal[moved.future] = self._targets(moved.next_obs, reward[moved.future], discount[moved.future])
        return goal

    def _targets(
        self, next_obs: Mapping[str, torch.Tensor], reward: torch.Tensor, discount: torch.Tensor
    ) -> torch.Tensor:
        with torch.no_grad():
            values = self._target(next_obs).float()
            valid = next_obs["action_mask"]
            choose = self._online(next_obs).float() if self.config.double else values
            # Arithmetic instead of selection: random masks cost a processor a mispredicted branch each.
            best = (choose + (valid.float() - 1.0) * 1e30).argmax(1, keepdim=True)
            value = values.gather(1, best).squeeze(1)
            # Where the future does not count, what stands there may be anything, even not finite; where
            # nothing is valid, there is nothing to win.
            counts = (discount != 0) & (valid.amax(1) != 0)
            return reward + torch.where(counts, discount * value, 0.0)

    def _update_average(self, average: PolicyNetwork) -> None:
        # The correction of Adam's kind, as a decay that grows: early averages are not stuck at the first
        # weights.
        decay = min(self.config.average_decay, (1 + self.updates) / (10 + self.updates))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(self._parameters), 1.0 - decay)

    def _moments(self, saved: Mapping[str, NDArray[Any]]) -> dict[torch.Tensor, dict[str, torch.Tensor]]:
        moments: dict[torch.Tensor, dict[str, torch.Tensor]] = {}
        if not saved:
            return moments
        for name, parameter in self.online.named_parameters():
            entry = {}
            for key in ("step", "exp_avg", "exp_avg_sq"):
                value = torch.from_numpy(np.array(saved[f"{name}.{key}"], dtype=np.float32))
                if key != "step" and value.shape != parameter.shape:
                    raise ValueError(
                        f"the moment {name}.{key} has another shape; was policy.hiddenSize changed?"
                    )
                entry[key] = value.to(self.device)
            moments[parameter] = entry
        return moments

    def _diverged(self, what: str) -> str:
        return (
            f"the {what} is not finite at update {self.updates + 1}: training diverged; lower learner.learningRate"
            f" (now {self.config.learning_rate:g}) or the scale of the rewards, and go on from the last good"
            " checkpoint by --resume"
        )


def _copy(source: PolicyNetwork, target: PolicyNetwork) -> None:
    with torch.no_grad():
        torch._foreach_copy_(list(target.parameters()), list(source.parameters()))
