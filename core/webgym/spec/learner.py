"""How parameters are learned from transitions."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from webgym.spec.base import INT32_MAX, Rule, SpecModel, Whole
from webgym.spec.pods import PodSettings
from webgym.spec.quantity import BytesQuantity, Quantity

__all__ = ["Checkpoint", "Learner", "Replay", "ReplayRatio"]


class Replay(SpecModel):
    """Prioritised experience replay (Schaul et al., 2016)."""

    capacity_bytes: BytesQuantity = Field(default=Quantity("1Gi"))
    """Memory for transitions, as a quantity (`512Mi`); the oldest are evicted beyond it. A transition
    without a frame takes about 10 kB, one with a frame 150 kB more. Each of several learners has so much."""
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.6
    """How strongly large errors are preferred: 0 samples uniformly, 1 in proportion to the error."""
    beta_start: Annotated[float, Field(ge=0, le=1)] = 0.4
    """Strength of the importance weights at the first update; it rises to 1 over `betaSteps`."""
    beta_steps: Annotated[int, Field(ge=1, le=INT32_MAX), Whole] = 10_000
    """Updates until the importance weights correct the preference in full."""
    min_transitions: Annotated[int, Field(ge=1, le=INT32_MAX), Whole] = 300
    """Transitions collected before the first update. At least `batchSize`."""


class ReplayRatio(SpecModel):
    """Gradient updates per environment step, held between two bounds: whoever runs ahead waits for the
    other."""

    min: Annotated[float, Field(ge=0, le=1000)] = 0.25
    """Below it, browsers pause until the learner has caught up. 0 lets browsers run ahead without end."""
    max: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Above it, the learner waits for new experience instead of overfitting to old."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="min may not exceed max",
            cel="self.min <= self.max",
            check=lambda self: self.min <= self.max,
            field="min",
        ),
    )


class Checkpoint(SpecModel):
    """What is kept on disk to resume from."""

    interval_seconds: Annotated[int, Field(ge=1, le=86_400), Whole] = 15
    """Seconds between checkpoints: what a killed learner loses at most."""
    keep: Annotated[int, Field(ge=1, le=1000), Whole] = 3
    """How many of the latest are kept; the best by validation is kept besides."""
    replay: bool = False
    """Whether the replay memory is saved too. Resuming is then seamless, and each checkpoint as large as
    it. Of several learners the first saves its part."""


class Learner(PodSettings):
    """The training algorithm, its settings and its pods."""

    algorithm: Literal["DQN"] = "DQN"
    """The algorithm: deep Q-learning. Cannot be changed in a run that exists."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 3e-4
    """Step size of Adam."""
    discount: Annotated[float, Field(ge=0, le=1)] = 0.99
    """Worth of a reward one step later; 1/(1 - discount) is about how many steps ahead the agent looks."""
    batch_size: Annotated[int, Field(ge=1, le=65_536), Whole] = 128
    """Transitions per gradient update, over all learner replicas."""
    target_update_interval: Annotated[int, Field(ge=1, le=INT32_MAX), Whole] = 200
    """Updates between copies of the network into the target network. Fewer learns faster and less stably."""
    n_step: Annotated[int, Field(ge=1, le=100), Whole] = 3
    """Steps of real reward before the estimate takes over. More carries rare rewards back faster, with
    more noise."""
    double: bool = True
    """Double Q-learning (van Hasselt et al., 2016): choose with one network, value with the other."""
    dueling: bool = True
    """Dueling heads (Wang et al., 2016): state value and advantages apart."""
    average_decay: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """Decay, per update, of the moving average of the weights that acting and evaluation use: steadier than
    the latest weights. 0 uses those."""
    gradient_clip: Annotated[float, Field(gt=0, le=1e6)] = 10.0
    """Largest norm of the gradient of an update; longer ones are scaled down to it."""
    step_cost: Annotated[float, Field(ge=0, le=10)] = 0.02
    """Taken off the reward of each step, in units of reward. Without it an agent that has learned a task
    may put off its end: at a discount of 0.99 waiting costs less than the errors of its estimates."""
    curriculum: Literal["Progress", "Weights"] = "Progress"
    """How several tasks share the practice: Weights alone, or half by weight and half by Progress, so that tasks on
    which success is rising or falling are practised more than those that are mastered or out of reach."""
    replay: Replay = Field(default_factory=Replay)
    """The memory that updates are drawn from."""
    replay_ratio: ReplayRatio = Field(default_factory=ReplayRatio)
    """Balance between acting and learning."""
    publish_interval: Annotated[int, Field(ge=1, le=1_000_000), Whole] = 10
    """Updates between versions of the parameters sent to the workers. Fewer keeps them fresher and costs
    traffic."""
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    """What is kept to resume from."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes a GPU when there is one."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Arithmetic of forward and backward passes; auto is fp32 on a CPU and the best that a GPU supports
    there."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Whether the network is compiled (torch.compile) before training begins; auto does so on a GPU. On a CPU an update
    takes a sixth less, after a minute or more of compiling, which needs a C++ compiler."""
    threads: Annotated[int, Field(ge=1, le=1024), Whole] | None = None
    """CPU threads of the learner. Left out: one for small networks, so that browsers keep the other cores."""
    replicas: Annotated[int, Field(ge=1, le=64), Whole] = 1
    """Learners that share each batch (torch.distributed). More than one pays with large batches on GPUs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *PodSettings.rules,
        Rule(
            message="replay.minTransitions must be at least batchSize, to fill the first batch",
            cel="self.replay.minTransitions >= self.batchSize",
            check=lambda self: self.replay.min_transitions >= self.batch_size,
            field="replay.min_transitions",
        ),
        Rule(
            message="batchSize must be a multiple of replicas: each learner takes an equal part",
            cel="self.batchSize % self.replicas == 0",
            check=lambda self: self.batch_size % self.replicas == 0,
            field="batch_size",
        ),
        Rule(
            message="precision fp16 needs a GPU: set device to cuda, or precision to auto, fp32 or bf16",
            cel="!(self.precision == 'fp16' && self.device == 'cpu')",
            check=lambda self: not (self.precision == "fp16" and self.device == "cpu"),
            field="precision",
        ),
        Rule(
            message="the algorithm of a run cannot be changed; create another run",
            cel="self == oldSelf",
            check=None,
            field="algorithm",
            on_field=True,
        ),
    )
