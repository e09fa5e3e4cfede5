"""Errors that a user can cause, each one clear line, and the exit codes that programs end with.

Anything that is not a :class:`WebGymError` is a fault of ours and ends in a stack trace.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "BrokerError",
    "BrowserError",
    "CheckpointError",
    "ExitCode",
    "ManifestError",
    "OutputError",
    "ProtocolError",
    "RunError",
    "SchemaMismatch",
    "TaskError",
    "UsageError",
    "WebGymError",
]


class ExitCode(IntEnum):
    """What a program's exit status means; the same for processes and for containers."""

    OK = 0
    FAILURE = 1
    """The run failed: a broker, browser, checkpoint or learner fault that could not be mended."""
    USAGE = 2
    """The manifest, an argument or an environment variable is wrong. Trying again cannot help."""
    BROKER_LOST = 3
    """Redis went away and did not come back in time. Trying again can help."""
    DIVERGED = 4
    """The learner saw a non-finite loss; the last good checkpoint is kept. Trying again needs other settings."""
    UNAVAILABLE = 5
    """A part that the program needs cannot be had on this machine: no browser starts, no episode can be played. Trying
    again here cannot help. A run whose worker ends with it ends with FAILURE."""
    INTERRUPTED = 130
    """Ctrl-C: the run was drained and its checkpoint written."""


class WebGymError(Exception):
    """One line for the user: what is wrong, where, and how to mend it."""

    exit_code: ExitCode = ExitCode.FAILURE


class UsageError(WebGymError):
    """A wrong argument, option or environment variable."""

    exit_code = ExitCode.USAGE


class ManifestError(UsageError):
    """A manifest that cannot be read or does not describe a possible run."""


class TaskError(UsageError):
    """A task name that nobody registered, or parameters that the task does not take."""


class TaskElsewhereError(TaskError):
    """A task whose module is not on this machine; it may be where the workers run."""


class OutputError(UsageError):
    """An output folder that cannot be written or holds another run."""


class BrokerError(WebGymError):
    """Redis cannot be reached, refuses the credentials, or broke off for good."""

    exit_code = ExitCode.BROKER_LOST


class BrowserError(WebGymError):
    """No usable Chromium, or one that cannot be started here."""


class CheckpointError(WebGymError):
    """A checkpoint that is missing, truncated, forged or of another schema."""


class ProtocolError(WebGymError):
    """A message that is truncated, oversized, of another protocol version, or not ours."""


class SchemaMismatch(ProtocolError):
    """Observation or action schema differ between writer and reader; the message names both hashes."""


class RunError(WebGymError):
    """The run as a whole failed, for a reason the message gives."""
