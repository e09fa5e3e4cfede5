"""A folder out of a container: ``tar`` there, the stream of ``exec`` in between, a careful extraction here."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym.errors import RunError, WebGymError
from webgym_operator.client.access import Cluster
from webgym_operator.client.refusal import ClusterError
from webgym_operator.client.volume import Door

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["BrokenArchive", "copy_folder", "extract", "tar_command"]

_STDOUT, _STDERR, _STATUS = 1, 2, 3
_SILENCE_SECONDS = 60.0
_BLOCK = 1 << 20
_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""The first releases of Python 3.11 have none; names and kinds of members are checked before it in any case."""


class BrokenArchive(WebGymError):
    """The archive ended before its end, or holds what no run writes. Trying again can help."""


def tar_command(folder: str, *, checkpoints: bool) -> list[str]:
    """The program that writes the folder to its standard output.

    Files that change or vanish meanwhile, as a learner's do, are no failure: what is torn is found by its checksum.
    """
    skipped = [
        ".new-*",
        ".old-*",
        ".*.tmp",
        "./.webgym",
        "lost+found",
        *([] if checkpoints else ["./checkpoints"]),
    ]
    return [
        *(
            "tar",
            "--create",
            "--file=-",
            f"--directory={folder}",
            "--ignore-failed-read",
            "--warning=no-file-changed",
        ),
        *(f"--exclude={pattern}" for pattern in skipped),
        ".",
    ]


def copy_folder(
    cluster: Cluster, door: Door, target: Path, *, checkpoints: bool, tell: Callable[[int], None]
) -> int:
    """Copy the run's folder into an empty one; returns the bytes of its files.

    Args:
        cluster: where the pod is.
        door: to the folder.
        target: to copy into.
        checkpoints: whether to copy those, too.
        tell: is given the bytes that have come.

    Raises:
        RunError: there is no such folder, or no ``tar``.
        BrokenArchive: the connection broke.
        ClusterError: refused, or not reached.
    """
    stream = _ExecStream(cluster, door, tar_command(door.folder, checkpoints=checkpoints), tell)
    try:
        try:
            size = extract(stream, target)
        except BrokenArchive:
            stream.finish()  # why it ended says more than that it did
            raise
        stream.finish()
        return size
    finally:
        stream.close()


def extract(stream: Any, target: Path) -> int:
    """Unpack an archive of plain files and folders; returns the bytes of the files.

    Args:
        stream: read from start to end.
        target: an existing, empty folder; nothing is written outside of it.

    Raises:
        BrokenArchive: it is cut off, or holds links, devices, or names that lead out of the folder.
        OSError: the disk does not take it.
    """
    size = 0
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as archive:
            for member in archive:
                parts = Path(member.name).parts
                if not (member.isreg() or member.isdir()) or ".." in parts or member.name.startswith("/"):
                    raise BrokenArchive(
                        f"the archive holds {member.name!r}, which no run writes; nothing was kept"
                    )
                member.mode = 0o755 if member.isdir() else 0o644
                archive.extract(member, target, set_attrs=not member.isdir(), **_FILTER)
                size += member.size if member.isreg() else 0
    except tarfile.TarError as error:
        raise BrokenArchive(f"the archive broke off: {error}") from error
    return size


class _ExecStream(io.RawIOBase):
    """Standard output of a program in a container, as a file to read.

    The client's own reader gathers whatever has come before it gives anything away; an archive of checkpoints would
    lie in memory as a whole. So frames are read from its socket one by one.
    """

    def __init__(self, cluster: Cluster, door: Door, command: list[str], tell: Callable[[int], None]) -> None:
        self._door = door
        self._tell = tell
        self._ready = b""
        self._errors = b""
        self._status: dict[str, Any] | None = None
        self._open = True
        self.count = 0
        """Bytes that came."""
        self._client = _connect(cluster, door, command)
        self._client.sock.settimeout(_SILENCE_SECONDS)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        while not self._ready and self._open:
            self._next_frame()
        view = memoryview(buffer).cast("B")
        n = min(len(view), len(self._ready))
        view[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n

    def finish(self) -> None:
        """Read to the end, and see how the program ended.

        Raises:
            RunError: it failed.
            BrokenArchive: nobody said how it ended.
        """
        while self._open:
            self._next_frame()
        said = " ".join(self._errors.decode(errors="replace").split())[:300]
        if self._status is None:
            raise BrokenArchive(
                f"the connection to pod {self._door.pod} broke off{f': {said}' if said else ''}"
            )
        if self._status.get("status") == "Success":
            return
        causes = (self._status.get("details") or {}).get("causes") or ()
        code = next((str(c.get("message")) for c in causes if c.get("reason") == "ExitCode"), "")
        if code == "1":
            return  # GNU tar: some files changed while they were read
        if "Cannot open: No such file" in said or "Cannot chdir" in said:
            raise RunError(f"the run has written nothing yet: there is no {self._door.folder} in its volume")
        why = said or str(self._status.get("message") or "no reason given")
        raise RunError(f"reading {self._door.folder} in pod {self._door.pod} failed: {why}")

    def close(self) -> None:
        """Break off what is not read yet."""
        if not self.closed:
            self._client.close()
        super().close()

    def _next_frame(self) -> None:
        from websocket import ABNF, WebSocketException

        try:
            code, frame = self._client.sock.recv_data_frame(True)
        except (WebSocketException, OSError):
            self._open = False
            return
        if code == ABNF.OPCODE_CLOSE:
            self._open = False
        if code not in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) or len(frame.data) < 2:
            return
        channel, data = frame.data[0], frame.data[1:]
        if channel == _STDOUT:
            self._ready = self._ready + data if self._ready else data
            self.count += len(data)
            self._tell(self.count)
        elif channel == _STDERR:
            self._errors = (self._errors + data)[-8192:]
        elif channel == _STATUS:
            try:
                self._status = json.loads(data)
            except ValueError:
                self._status = {"message": data.decode(errors="replace")}
            self._open = False  # nothing comes after it


def _connect(cluster: Cluster, door: Door, command: list[str]) -> Any:
    from kubernetes.client import CoreV1Api
    from kubernetes.client.exceptions import ApiException
    from kubernetes.stream import stream

    try:
        return stream(
            CoreV1Api(cluster.client).connect_get_namespaced_pod_exec,
            door.pod,
            cluster.namespace,
            container=door.container,
            command=command,
            stdin=False,
            stdout=True,
            stderr=True,
            tty=False,
            binary=True,
            _preload_content=False,
        )
    except ApiException as error:
        raise _refused(cluster, door, error) from None


def _refused(cluster: Cluster, door: Door, error: Any) -> ClusterError:
    """A refused handshake: the client has its words, but not always the server's."""
    said = " ".join(str(error.reason or error).split())
    if "403" in said or error.status == 403:
        return ClusterError(
            403,
            "Forbidden",
            f"you may not create pods/exec in namespace {cluster.namespace}: ask whoever runs the cluster for a role "
            f"that may; kubectl auth can-i create pods/exec --namespace {cluster.namespace} tells when it is so",
            by_rights=True,
        )
    return ClusterError(
        error.status or 0,
        "Unreachable",
        f"no connection into pod {door.pod} of {cluster.where}: {said[:300]}",
    )
