"""The run directory: who may use it, what lies where, and files that a crash leaves whole or absent."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from webgym.errors import OutputError

__all__ = [
    "JsonLinesWriter",
    "RunDirectory",
    "last_json_line",
    "read_json_lines",
    "remove_scratch",
    "write_atomic",
    "write_json",
]

MANIFEST = "run.yaml"
_TASK_PATH = ".webgym/task-path"


class RunDirectory:
    """A run's folder, held by one process at a time.

    Made by :meth:`create`, :meth:`resume` or, for reading only, :meth:`open`.
    """

    def __init__(self, path: Path, uid: str, lock: int | None, fresh: bool) -> None:
        self.path = path
        self.uid = uid
        """Names the run's keys in Redis; stays the same when the run is resumed."""
        self._lock = lock
        self._fresh = fresh

    # -- making

    @staticmethod
    def default_path(name: str, root: Path = Path("runs")) -> Path:
        """``runs/<name>-<date>-<time>``, with a number behind it where that exists."""
        base = root / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        path, n = base, 1
        while path.exists():
            n += 1
            path = base.with_name(f"{base.name}-{n}")
        return path

    @staticmethod
    def latest(name: str, root: Path = Path("runs")) -> Path:
        """The newest folder that :meth:`default_path` made for a run of this name.

        Raises:
            OutputError: there is none.
        """
        found = [p for p in root.glob(f"{name}-*") if (p / MANIFEST).is_file()]
        if not found:
            raise OutputError(f"--resume: no run of {name!r} under {root}/; name its folder by --out")
        return max(found, key=lambda p: (p / MANIFEST).stat().st_mtime)

    @staticmethod
    def check_new(path: Path) -> None:
        """Whether a new run may have this folder, without touching anything.

        Raises:
            OutputError: it holds something, is a file, or lies where nothing can be made.
        """
        try:
            if path.is_dir():
                if any(path.iterdir()):
                    if (path / MANIFEST).is_file():
                        raise OutputError(
                            f"{path} holds a run: add --resume to go on, or name another by --out"
                        )
                    raise OutputError(f"{path} is not empty: name a new or empty folder by --out")
            elif path.exists() or path.is_symlink():
                raise OutputError(f"{path} is not a folder: name a new or empty folder by --out")
        except OSError as e:
            raise _unusable(path, e) from e
        parent = next(p for p in (path, *path.absolute().parents) if p.exists())
        if not parent.is_dir():
            raise OutputError(f"{path} cannot be made: {parent} is not a folder; name another by --out")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise OutputError(f"{path} cannot be written: no permission for {parent}; name another by --out")

    @classmethod
    def create(cls, path: Path, uid: str | None = None) -> RunDirectory:
        """Make the folder of a new run and take its lock. ``run.yaml`` is the caller's to write.

        Args:
            path: of the folder.
            uid: the run's identity; None makes one.

        Raises:
            OutputError: as :meth:`check_new`, or another process was faster.
        """
        cls.check_new(path)
        fresh = not path.exists()
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = _take_lock(path)
            directory = cls(path, uid or uuid.uuid4().hex, lock, fresh)
            write_atomic(path / ".webgym" / "uid", directory.uid + "\n")
            (path / "logs").mkdir(exist_ok=True)
        except OSError as e:
            raise _unusable(path, e) from e
        return directory

    @classmethod
    def resume(cls, path: Path, option: str = "--resume") -> RunDirectory:
        """Take the lock of an existing run's folder.

        Args:
            path: of the folder.
            option: what messages begin with.

        Raises:
            OutputError: it holds no run, cannot be written, or another process has it.
        """
        cls._require_run(path, f"{option}: ")
        try:
            lock = _take_lock(path)
            uid_file = path / ".webgym" / "uid"
            uid = uid_file.read_text().strip() if uid_file.is_file() else ""
            directory = cls(path, uid or uuid.uuid4().hex, lock, fresh=False)
            remove_scratch(path)
            write_atomic(uid_file, directory.uid + "\n")
            (path / "logs").mkdir(exist_ok=True)
        except OSError as e:
            raise _unusable(path, e) from e
        return directory

    @classmethod
    def open(cls, path: Path, option: str = "") -> RunDirectory:
        """For reading: no lock, nothing written.

        Args:
            path: of the folder.
            option: what messages begin with.

        Raises:
            OutputError: it holds no run.
        """
        cls._require_run(path, f"{option}: " if option else "")
        uid_file = path / ".webgym" / "uid"
        return cls(path, uid_file.read_text().strip() if uid_file.is_file() else "", None, fresh=False)

    @staticmethod
    def _require_run(path: Path, prefix: str) -> None:
        if not path.is_dir():
            raise OutputError(f"{prefix}{path} is not a folder of a run: no such folder")
        if not (path / MANIFEST).is_file():
            raise OutputError(f"{prefix}{path} is not a folder of a run: it holds no {MANIFEST}")

    def discard(self) -> None:
        """Undo :meth:`create` for a run that never began; what others put there stays."""
        self.close()
        for name in (MANIFEST, ".webgym/manifest.yaml", _TASK_PATH, ".webgym/uid", ".webgym/lock"):
            (self.path / name).unlink(missing_ok=True)
        for folder in (self.logs, self.path / ".webgym", *([self.path] if self._fresh else [])):
            try:
                folder.rmdir()
            except OSError:
                return

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- what lies where

    @property
    def manifest(self) -> Path:
        """The resolved manifest, without secrets."""
        return self.path / MANIFEST

    @property
    def metrics(self) -> Path:
        """One JSON line about every second."""
        return self.path / "metrics.jsonl"

    @property
    def episodes(self) -> Path:
        """The ledger: one JSON line for each episode that counted."""
        return self.path / "episodes.jsonl"

    @property
    def checkpoints(self) -> Path:
        """One folder per checkpoint."""
        return self.path / "checkpoints"

    @property
    def evaluation(self) -> Path:
        """The final evaluation."""
        return self.path / "evaluation.json"

    @property
    def summary(self) -> Path:
        """The run in one JSON object."""
        return self.path / "summary.json"

    @property
    def logs(self) -> Path:
        """One log per program."""
        return self.path / "logs"

    def log(self, program: str) -> Path:
        """The log of one program."""
        return self.logs / f"{program}.log"

    def last_word(self, program: str) -> Path:
        """The termination message of one program."""
        return self.path / ".webgym" / f"{program}.last-word"

    @property
    def task_path(self) -> tuple[Path, ...]:
        """Folders that may hold the modules of the run's tasks, the likeliest first.

        Kept with the run, so that it can be resumed and judged from elsewhere: ``run.yaml`` lies beside no module.
        """
        try:
            return tuple(Path(line) for line in (self.path / _TASK_PATH).read_text().splitlines() if line)
        except FileNotFoundError:
            return ()

    def remember_task_path(self, folders: Iterable[Path]) -> None:
        """Put these folders before those that are known already."""
        known = dict.fromkeys(os.path.abspath(f) for f in (*folders, *self.task_path))
        write_atomic(self.path / _TASK_PATH, "".join(f"{folder}\n" for folder in known))

    def next_evaluation(self) -> Path:
        """``evaluation-<n>.json``, the first that does not exist."""
        n = 1
        while (self.path / f"evaluation-{n}.json").exists():
            n += 1
        return self.path / f"evaluation-{n}.json"


def _take_lock(path: Path) -> int:
    """A descriptor whose lock ends with this process, however it ends."""
    import fcntl  # Windows has none; what only reads folders works there

    (path / ".webgym").mkdir(exist_ok=True)
    lock = os.open(path / ".webgym" / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 32).decode(errors="replace").strip()
        os.close(lock)
        raise OutputError(f"{path} is in use by another run (process {holder or 'unknown'})") from None
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock


def _unusable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"{path} cannot be used: {error.strerror or error}; name another folder by --out")


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file so that readers, and a restart after a crash, see all of it or what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    data = content.encode() if isinstance(content, str) else content
    try:
        with scratch.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def remove_scratch(folder: Path) -> None:
    """Remove what :func:`write_atomic` left of files that it was killed over. No writer may be at work there."""
    for scratch in folder.glob(".*.*.tmp"):
        scratch.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """:func:`write_atomic` of one indented JSON object; NaN and infinities become null."""
    write_atomic(path, json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


class JsonLinesWriter:
    """Appends JSON objects, one per line, each by a single write: a crash can truncate the last line only."""

    def __init__(self, path: Path) -> None:
        """Open for appending, dropping a last line that a crash left unfinished."""
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        size = os.fstat(self._fd).st_size
        end = _end_of_last_line(self._fd, size)
        if end < size:
            os.ftruncate(self._fd, end)

    def write(self, value: Mapping[str, Any]) -> None:
        """Append one object; NaN and infinities become null."""
        self.write_many([value])

    def write_many(self, values: list[Mapping[str, Any]]) -> None:
        """Append several objects by one write."""
        lines = (json.dumps(_finite(v), ensure_ascii=False, allow_nan=False) + "\n" for v in values)
        data = memoryview("".join(lines).encode())
        while data:  # A nearly full disk may take a part only.
            data = data[os.write(self._fd, data) :]

    def sync(self) -> None:
        """Wait until the disk has it."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file. Harmless twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> JsonLinesWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file; an unfinished or damaged line is skipped, a missing file is empty."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for line in file:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value


def last_json_line(path: Path) -> dict[str, Any] | None:
    """The last object of a JSON-lines file that can be read, without reading all of it; None if there is none."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 65536))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                return value
    return None


def _end_of_last_line(fd: int, size: int) -> int:
    """Offset just behind the last newline, 0 if there is none."""
    end = size
    while end > 0:
        start = max(0, end - 65536)
        block = os.pread(fd, end - start, start)
        found = block.rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
