"""Checkpoints: atomic, checksummed folders that load without executing anything they hold.

A checkpoint is a folder ``step-N`` of ``.npz`` files (one a group of arrays), ``state.json`` (counters,
schedules, random states) and ``manifest.json`` (format, schema, size and SHA-256 of every file). It is
written under another name, synced and then renamed, so a folder that carries its name is whole; what disks
do to it later, the checksums find.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import struct
import time
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from webgym.errors import CheckpointError
from webgym.rundir import remove_scratch
from webgym_learner.archive import empty_dictionaries, read_arrays, write_arrays
from webgym_learner.best import BestNote, read_note, remove_note, write_note

__all__ = ["Checkpoint", "CheckpointStore", "load_checkpoint"]

_FORMAT = 1
_MANIFEST, _STATE = "manifest.json", "state.json"
_NAME = re.compile(r"step-(\d{1,18})")
_GROUP = re.compile(r"[A-Za-z0-9_-]+")
_DAMAGE: tuple[type[Exception], ...] = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    EOFError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
)
"""What the parsers of JSON, zip and npy raise at bytes that are not theirs."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint as loaded."""

    path: Path
    step: int
    schema: str
    arrays: dict[str, Any]
    """Nested dictionaries of read-only arrays, as saved; only the groups asked for."""
    state: dict[str, Any]
    """What was saved of counters, schedules and random states."""
    skipped: tuple[str, ...] = field(default=())
    """One line for each newer checkpoint that was damaged."""


class CheckpointStore:
    """The checkpoints of one run.

    Args:
        directory: where they lie; made by the first save.
        schema: hash of the observation and action schema; no other is loaded.
        keep: how many of the newest are kept, besides the best.
    """

    def __init__(self, directory: Path, schema: str, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least the newest checkpoint has to stay")
        self.directory = directory
        self.schema = schema
        self.keep = keep
        self._held: set[int] = set()
        self._damaged: set[int] = set()
        self._newest = 0

    def steps(self) -> list[int]:
        """Steps there are checkpoints of, damaged or not, ascending."""
        return sorted(_folders(self.directory))

    def hold(self, step: int) -> None:
        """Keep the checkpoint of a step, whatever its age, while it is being judged."""
        self._held.add(step)

    def release(self, step: int) -> None:
        """Let pruning have a held checkpoint again, at the next save."""
        self._held.discard(step)

    def free_step(self, step: int) -> int:
        """The number to save under after so many steps: the first from there on that is free.

        Training may go on without taking a step, while all browsers validate: what is saved then must not replace what
        is being judged or was judged best, nor come before what was saved or loaded last.
        """
        note = self.note()
        taken = self._held if note is None else self._held | {note.step}
        step = max(step, self._newest)
        while step in taken:
            step += 1
        return step

    def save(self, step: int, arrays: Mapping[str, Any], state: Mapping[str, Any]) -> Path:
        """Writes a checkpoint, then removes those that need not be kept.

        Args:
            step: orders the checkpoints; an older one of the same step is replaced.
            arrays: groups of (nested) dictionaries of arrays; each group is a file and can be loaded alone.
            state: anything that JSON can carry.

        Raises:
            CheckpointError: the disk does not take it. What was there before is still there.
            TypeError: the state does not fit into JSON, or an array holds Python objects.
        """
        final = self.directory / f"step-{step}"
        temporary = self.directory / f".new-{final.name}-{os.getpid()}"
        try:
            self._remove_leftovers()
            temporary.mkdir(parents=True)
            for name, group in arrays.items():
                if not _GROUP.fullmatch(name):
                    raise TypeError(f"{name!r} is no name for a group of arrays")
                with _synced(temporary / f"{name}.npz") as file:
                    write_arrays(file, group)
            with _synced(temporary / _STATE) as file:
                file.write(json.dumps(state, default=_plain).encode())
            files = {
                path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)}
                for path in sorted(temporary.iterdir())
            }
            manifest: dict[str, Any] = {
                "format": _FORMAT,
                "schema": self.schema,
                "step": step,
                "time": time.time(),
                "empty": {name: empty_dictionaries(group) for name, group in arrays.items()},
                "files": files,
            }
            manifest["sha256"] = _digest(manifest)
            with _synced(temporary / _MANIFEST) as file:
                file.write(json.dumps(manifest, indent=1).encode())
            _sync_folder(temporary)
            replaced = self.directory / f".old-{final.name}"
            if final.exists():
                # Between these two renames the old one still counts, under its other name: see _folders().
                final.rename(replaced)
            temporary.rename(final)
            _sync_folder(self.directory)
            shutil.rmtree(replaced, ignore_errors=True)
            self._damaged.discard(step)
            self._prune()
        except OSError as error:
            raise CheckpointError(
                f"no checkpoint can be written to {self.directory}: {error.strerror or error};"
                " free space or fix the permissions"
            ) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._newest = step
        return final

    def mark(self, step: int, score: float, verdict: Mapping[str, Any] | None = None) -> bool:
        """Notes an evaluation's score; the best-scored checkpoint is kept whatever its age.

        Args:
            step: of the checkpoint.
            score: what checkpoints are compared by.
            verdict: what the score was made of, for :meth:`note`; JSON-able.

        Returns:
            Whether this is now the best (of equal scores the later counts).

        Raises:
            CheckpointError: there is no checkpoint of that step, or the disk does not take the note.
        """
        folders = _folders(self.directory)
        if step not in folders:
            raise CheckpointError(f"{self.directory} has no checkpoint of step {step}")
        known = self.note()
        if known is not None and known.step in folders and known.score > score:
            return False
        try:
            write_note(self.directory, BestNote(step, float(score), verdict or {}))
            _sync_folder(self.directory)
            self._prune()
        except OSError as error:
            raise CheckpointError(
                f"the best score cannot be noted in {self.directory}: {error.strerror}"
            ) from None
        return True

    def note(self) -> BestNote | None:
        """Which checkpoint was marked best, and by what verdict; None where none was."""
        return read_note(self.directory)

    def unmark(self) -> None:
        """Forget which was best: its checkpoint is of no use any more."""
        remove_note(self.directory)

    def latest(self, groups: Collection[str] | None = None) -> Checkpoint:
        """The newest good checkpoint; damaged newer ones are named in the log and in ``skipped``.

        Args:
            groups: load these groups of arrays alone; all by default.

        Raises:
            CheckpointError: there is none, none is good, or the newest good one has another schema.
        """
        folders = _folders(self.directory)
        skipped: list[str] = []
        for step in sorted(folders, reverse=True):
            try:
                found = load_checkpoint(folders[step], groups=groups)
            except CheckpointError as error:
                skipped.append(str(error))
                self._damaged.add(step)
                _LOG.warning("%s; falling back to the checkpoint before it", error)
                continue
            # An older one would be of that schema, too: no reason to fall back.
            _check_schema(found, self.schema)
            self._newest = found.step
            return Checkpoint(
                found.path, found.step, found.schema, found.arrays, found.state, skipped=tuple(skipped)
            )
        if skipped:
            raise CheckpointError(f"{skipped[0]}; no other checkpoint in {self.directory} is good")
        raise CheckpointError(f"{self.directory} has no checkpoint")

    def best(self, groups: Collection[str] | None = None) -> Checkpoint:
        """The checkpoint with the best score so far.

        Raises:
            CheckpointError: none was marked, or the one marked is damaged or of another schema.
        """
        known = self.note()
        if known is None:
            raise CheckpointError(f"no checkpoint in {self.directory} has a score")
        folders = _folders(self.directory)
        if known.step not in folders:
            raise CheckpointError(f"the best checkpoint, step {known.step}, is missing in {self.directory}")
        return load_checkpoint(folders[known.step], self.schema, groups)

    def _prune(self) -> None:
        """Keeps the newest that look whole, and the best; a damaged one never pushes out a good one."""
        folders = _folders(self.directory)
        whole = [
            step
            for step in sorted(folders, reverse=True)
            if step not in self._damaged and _looks_whole(folders[step])
        ]
        kept = set(whole[: self.keep]) | self._held
        known = self.note()
        if known is not None:
            kept.add(known.step)
        for step, folder in folders.items():
            if step not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _remove_leftovers(self) -> None:
        """Removes what a writer left that was killed; there is one writer a run."""
        if self.directory.is_dir():
            remove_scratch(self.directory)
            for path in self.directory.glob(".new-*"):
                shutil.rmtree(path, ignore_errors=True)
            for path in self.directory.glob(".old-*"):
                if (self.directory / path.name.removeprefix(".old-")).exists():
                    shutil.rmtree(path, ignore_errors=True)


def load_checkpoint(
    path: Path, schema: str | None = None, groups: Collection[str] | None = None
) -> Checkpoint:
    """Loads one checkpoint folder, whichever run it is of.

    Args:
        path: the folder.
        schema: hash of the schema it has to have; any by default.
        groups: load these groups of arrays alone; all by default.

    Raises:
        CheckpointError: it is missing, truncated, altered, of another format or of another schema.
    """
    try:
        manifest = _read_manifest(path)
        found = Checkpoint(path, int(manifest["step"]), str(manifest["schema"]), {}, {})
        if schema is not None:
            _check_schema(found, schema)
        files = {str(name): entry for name, entry in manifest["files"].items()}
        available = {name.removesuffix(".npz") for name in files if name.endswith(".npz")}
        wanted = available if groups is None else set(groups)
        if not wanted <= available:
            raise CheckpointError(f"the checkpoint {path} lacks {', '.join(sorted(wanted - available))}")
        for name in (_STATE, *(f"{group}.npz" for group in sorted(wanted))):
            _verify(path / name, int(files[name]["bytes"]), str(files[name]["sha256"]))
        found.state.update(json.loads((path / _STATE).read_bytes()))
        for group in sorted(wanted):
            found.arrays[group] = read_arrays(path / f"{group}.npz", manifest["empty"][group])
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"the checkpoint {path} cannot be read: {error.strerror or error}") from None
    except _DAMAGE as error:
        raise CheckpointError(f"the checkpoint {path} is damaged: {error}") from None
    return found


def _check_schema(found: Checkpoint, schema: str) -> None:
    if found.schema != schema:
        raise CheckpointError(
            f"the checkpoint {found.path} has schema {found.schema}, this run has {schema};"
            " resume with the manifest it was made by"
        )


def _folders(directory: Path) -> dict[int, Path]:
    """Folders of checkpoints by step; one that was being replaced counts while its successor is not there."""
    folders: dict[int, Path] = {}
    if directory.is_dir():
        for path in sorted(directory.iterdir()):
            # ".old-" sorts before "step-", so the successor wins.
            match = _NAME.fullmatch(path.name.removeprefix(".old-"))
            if match and path.is_dir():
                folders[int(match[1])] = path
    return folders


def _read_manifest(path: Path) -> dict[str, Any]:
    if not (path / _MANIFEST).is_file():
        raise CheckpointError(f"{path} is no checkpoint: it has no {_MANIFEST}")
    manifest = json.loads((path / _MANIFEST).read_bytes())
    if not isinstance(manifest, dict):
        raise ValueError(f"{_MANIFEST} is not a map")
    if manifest.get("format") != _FORMAT:
        raise CheckpointError(
            f"the checkpoint {path} has format {manifest.get('format')}, this version reads {_FORMAT}"
        )
    if manifest.pop("sha256", None) != _digest(manifest):
        raise ValueError(f"{_MANIFEST} does not match its checksum")
    return manifest


def _looks_whole(path: Path) -> bool:
    """Whether all files are there at their sizes: cheap, unlike checksums."""
    try:
        files = _read_manifest(path)["files"]
        return all((path / name).stat().st_size == entry["bytes"] for name, entry in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CheckpointError):
        return False


def _verify(path: Path, size: int, sha256: str) -> None:
    if not path.is_file():
        raise ValueError(f"{path.name} is missing")
    if path.stat().st_size != size:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes of {size}")
    if _sha256(path) != sha256:
        raise ValueError(f"{path.name} does not match its checksum")


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} does not fit into a checkpoint's state")


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _synced(path: Path) -> Iterator[BinaryIO]:
    """A new file whose contents are on the disk when the block ends."""
    with path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """Makes renames and new files in a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
