"""The ``webgym`` command: finds subcommands by entry point, and turns errors into one line and an exit code.

A subcommand is loaded only when it is called, or listed by ``--help``; its module has to import light, so that help
and errors come at once.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

from webgym import __version__
from webgym.errors import ExitCode, UsageError, WebGymError
from webgym.printable import one_line, printable
from webgym.streams import StdoutLost, drop_stdout, guard_streams

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

__all__ = ["COMMAND_GROUP", "Command", "main", "other_webgym"]

COMMAND_GROUP = "webgym.commands"
_DISTRIBUTION = "webgym-platform"

_EXTRAS: dict[str, tuple[str, ...]] = {
    "run": ("worker", "learner"),
    "eval": ("worker", "learner"),
    "worker": ("worker",),
    "tasks": ("worker",),
    "learner": ("learner",),
    "report": ("learner",),
    "bench": ("worker",),
    "doctor": ("worker",),
    "operator": ("operator",),
    "submit": ("operator",),
    "status": ("operator",),
    "logs": ("operator",),
    "stop": ("operator",),
    "resume": ("operator",),
    "fetch": ("operator",),
}
"""Extras that a command's dependencies come with."""

_ORDER = (
    *("run", "doctor", "eval", "validate", "tasks", "report", "queue"),
    *("submit", "status", "logs", "stop", "resume", "fetch"),
)
"""Commands for people come first in help, in the order in which one meets them."""


class Command(Protocol):
    """A subcommand; the entry point names the class, and one object of it is made without arguments."""

    name: str
    help: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments to its parser."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do the work; returns the exit code. Heavy imports belong here."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``webgym`` with the arguments of the process, or with `argv`; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    guard_streams()
    code = int(ExitCode.OK)
    try:
        try:
            code = _called(arguments)
        finally:
            sys.stdout.flush()  # here, where its loss is still told
    except BrokenPipeError:
        drop_stdout()  # The reader of our output, such as head, has seen enough.
    except StdoutLost as error:
        drop_stdout()
        _complain(str(error))
        code = code or int(error.exit_code)
    return code


def _called(arguments: list[str]) -> int:
    try:
        return _main(arguments)
    except StdoutLost:
        raise
    except WebGymError as error:
        _complain(str(error))
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)


class _Parser(argparse.ArgumentParser):
    """Hides no failure of stdout, and shows what it cannot understand as plain text."""

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        """End with the usage and one line."""
        super().error(printable(message))


def _main(arguments: list[str]) -> int:
    other = other_webgym()
    if other is not None:
        sys.stderr.write(f"webgym: warning: {other}\n")
    commands = _find_commands()
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    parser = _Parser(
        prog="webgym",
        description="Train visual web agents by reinforcement learning, on many real browsers at once.",
        epilog="`webgym COMMAND --help` explains one command.",
    )
    parser.add_argument("--version", action="version", version=f"webgym {__version__} ({_DISTRIBUTION})")
    if called is not None and called not in commands:
        close = difflib.get_close_matches(called, list(commands), n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(commands)}"
        raise UsageError(f"there is no command {called or repr(called)}; {hint}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    missing: dict[str, ImportError] = {}
    for name, entry in commands.items():
        # Only the one called is loaded, unless help lists them all.
        if name != called and (called is not None or "--version" in arguments):
            subparsers.add_parser(name, add_help=False)
            continue
        try:
            command = cast("type[Command]", entry.load())()
        except ImportError as error:
            if _is_ours(error) and name == called:
                raise  # a fault of ours, not a missing extra
            missing[name] = error
            subparsers.add_parser(name, help=f"(not installed: needs {_extras(name)})", add_help=False)
            continue
        sub = subparsers.add_parser(name, help=command.help, description=command.help)
        command.configure(sub)
        sub.set_defaults(_command=command)
    if called in missing:
        raise _not_installed(called, missing[called]) from missing[called]
    args = parser.parse_args(arguments)
    chosen: Command | None = getattr(args, "_command", None)
    if chosen is None:
        parser.print_help()
        return int(ExitCode.OK)
    try:
        return int(chosen.run(args))
    except ModuleNotFoundError as error:
        if _is_ours(error):
            raise
        raise _not_installed(args.command, error) from error


def _is_ours(error: ImportError) -> bool:
    return error.name is not None and error.name.startswith("webgym")


def _find_commands() -> dict[str, EntryPoint]:
    """Entry points of all commands by name, those for people first.

    Raises:
        UsageError: there are none, which happens when the distribution is not installed.
    """
    found = {entry.name: entry for entry in entry_points(group=COMMAND_GROUP)}
    if not found:
        raise UsageError(f"{_DISTRIBUTION} is not installed; in a checkout: pip install -e .")
    first = [name for name in _ORDER if name in found]
    return {name: found[name] for name in [*first, *sorted(set(found) - set(first))]}


def other_webgym() -> str | None:
    """A line about the other project of the name, when it is installed: both would own the package webgym."""
    try:
        version = distribution("webgym").version
    except PackageNotFoundError:
        return None
    return (
        f"the distribution webgym {version} from PyPI is another project and overwrites this one: "
        f"pip uninstall webgym && pip install --force-reinstall {_DISTRIBUTION}"
    )


def _extras(name: str) -> str:
    extras = _EXTRAS.get(name, ("all",))
    return f"the {' and '.join(extras)} extra{'s' if len(extras) > 1 else ''}"


def _not_installed(name: str, error: ImportError) -> UsageError:
    extras = ",".join(_EXTRAS.get(name, ("all",)))
    what = f"{error.name} is missing" if error.name else str(error)
    return UsageError(
        f"webgym {name} needs {_extras(name)}: pip install '{_DISTRIBUTION}[{extras}]' ({what})"
    )


def _complain(line: str) -> None:
    sys.stderr.write(f"webgym: {one_line(line)}\n")


if __name__ == "__main__":
    sys.exit(main())
