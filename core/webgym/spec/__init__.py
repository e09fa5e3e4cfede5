"""The run spec: pydantic models of the whole WebGymRun, the one source of the CRD, of validation and of
defaults.

Attributes are snake_case in Python and camelCase in manifests. Models are immutable;
``model_copy(update=...)`` makes a changed copy. Read and write manifests with :mod:`webgym.manifest`.
"""

from __future__ import annotations

from webgym.spec.base import Rule, SpecModel
from webgym.spec.browser import Browser
from webgym.spec.budget import Evaluation, Stop
from webgym.spec.cpus import CpuSet
from webgym.spec.learner import Checkpoint, Learner, Replay, ReplayRatio
from webgym.spec.pods import EnvSource, EnvVar, KeyRef, PodSettings, Resources, Toleration
from webgym.spec.policy import Exploration, Observation, Policy
from webgym.spec.quantity import Quantity
from webgym.spec.redis import Redis, RedisTls
from webgym.spec.run import API_VERSION, KIND, Metadata, RunManifest, RunSpec
from webgym.spec.secrets import PasswordSource, SecretKeyRef, redact_urls
from webgym.spec.storage import Storage
from webgym.spec.task import TaskSpec
from webgym.spec.workers import Autoscaling, Workers

__all__ = [
    "API_VERSION",
    "KIND",
    "Autoscaling",
    "Browser",
    "Checkpoint",
    "CpuSet",
    "EnvSource",
    "EnvVar",
    "Evaluation",
    "Exploration",
    "KeyRef",
    "Learner",
    "Metadata",
    "Observation",
    "PasswordSource",
    "PodSettings",
    "Policy",
    "Quantity",
    "Redis",
    "RedisTls",
    "Replay",
    "ReplayRatio",
    "Resources",
    "Rule",
    "RunManifest",
    "RunSpec",
    "SecretKeyRef",
    "SpecModel",
    "Stop",
    "Storage",
    "TaskSpec",
    "Toleration",
    "Workers",
    "redact_urls",
]
