"""What a program tells the world while it runs: logs, health, metrics, and its last word."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from webgym.errors import UsageError

__all__ = ["LAST_WORD_BYTES", "Numbers", "TelemetryServer", "configure_logging", "last_word", "log_context"]

LAST_WORD_BYTES = 4096
"""Kubernetes shows no more of a termination message."""

_context: ContextVar[dict[str, str]] = ContextVar("webgym_log_context")


@contextlib.contextmanager
def log_context(**fields: str) -> Iterator[None]:
    """Add fields (``episode=...``) to every log record made inside, in this task or thread."""
    token = _context.set({**_context.get({}), **fields})
    try:
        yield
    finally:
        _context.reset(token)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, then run, worker, episode and what else is
    known.
    """

    def __init__(self, **constant: str) -> None:
        super().__init__()
        self._constant = constant

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line without its newline."""
        created = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{created}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._constant,
            **_context.get({}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """A line for people: time, level, message, and the fields of :func:`log_context`."""

    def __init__(self, worker: str = "") -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line, with the stack trace after it if there is one."""
        text = super().format(record)
        fields = " ".join(f"{k}={v}" for k, v in _context.get({}).items())
        first, newline, rest = text.partition("\n")
        worker = f"{self._worker}: " if self._worker else ""
        return f"{worker}{first}{f'  [{fields}]' if fields else ''}{newline}{rest}"


def configure_logging(
    log_format: str | None = None,
    *,
    run: str = "",
    worker: str = "",
    level: int | str = logging.INFO,
    stream: IO[str] | None = None,
) -> None:
    """Send the root logger's records to one stream, and nowhere else.

    Args:
        log_format: ``json``, ``text``, or None: text on a terminal, JSON elsewhere.
        run: the run's uid, in every JSON line.
        worker: the program's name, in every line.
        level: what is logged.
        stream: None for stderr.
    """
    stream = sys.stderr if stream is None else stream
    text = stream.isatty() if log_format is None else log_format == "text"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter(worker) if text else JsonFormatter(run=run, worker=worker))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)


class Numbers(Collector):
    """A program's latest figures as Prometheus gauges ``webgym_<name>``; None and texts are left out.

    Args:
        labels: on every gauge, such as the run and the program.
        registry: where it is registered.
        each: figures told for each of several things, and the label that names the thing: those are mappings.
    """

    def __init__(
        self,
        labels: Mapping[str, str],
        registry: CollectorRegistry = REGISTRY,
        each: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._labels = dict(labels)
        self._each = dict(each)
        self._by_thing: dict[str, dict[str, float]] = {}
        # Replaced as a whole and never changed: a scrape in another thread sees one moment.
        self._numbers: dict[str, float] = {}
        registry.register(self)

    def set(self, numbers: Mapping[str, Any]) -> None:
        """Take over new figures."""
        self._numbers = {k: float(v) for k, v in numbers.items() if isinstance(v, int | float)}
        self._by_thing = {k: dict(numbers[k]) for k in self._each if isinstance(numbers.get(k), Mapping)}

    def collect(self) -> Iterable[Metric]:
        """The figures as gauges."""
        for name, value in self._numbers.items():
            gauge = GaugeMetricFamily(f"webgym_{name}", name.replace("_", " "), labels=list(self._labels))
            gauge.add_metric(list(self._labels.values()), value)
            yield gauge
        for name, values in self._by_thing.items():
            names = [*self._labels, self._each[name]]
            gauge = GaugeMetricFamily(f"webgym_{name}", name.replace("_", " "), labels=names)
            for thing, value in values.items():
                gauge.add_metric([*self._labels.values(), thing], value)
            yield gauge


class TelemetryServer:
    """Serves ``/healthz`` and ``/metrics`` from a thread of its own."""

    def __init__(
        self,
        health: Callable[[], str | None],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        """Bind the port; :meth:`start` begins to answer.

        Args:
            health: called for each ``/healthz``, in a thread of the server; None while all is well (200),
                else the reason (503). An exception counts as a reason.
            host: the address to listen on.
            port: 0 picks a free one.
            registry: whose metrics are served.

        Raises:
            UsageError: the address cannot be had.
        """
        try:
            self._server = _Server((host, port), _Handler)
        except (OSError, OverflowError) as e:
            raise UsageError(
                f"cannot serve metrics on {host}:{port}: {e}; set WEBGYM_METRICS_PORT (0 picks a free port)"
            ) from e
        self._server.health = health
        self._server.registry = registry
        self._thread = threading.Thread(target=self._server.serve_forever, name="telemetry", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> TelemetryServer:
        """Begin to answer."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop answering and free the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> TelemetryServer:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    health: Callable[[], str | None]
    registry: CollectorRegistry


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/healthz":
            try:
                reason = self.server.health()
            except Exception as e:
                reason = f"{type(e).__name__}: {e}"
            body = {"status": "ok"} if reason is None else {"status": "unhealthy", "reason": reason}
            self._answer(200 if reason is None else 503, "application/json", json.dumps(body).encode())
        elif path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, content_type, encode(self.server.registry))
        else:
            self._answer(404, "text/plain; charset=utf-8", b"here are /healthz and /metrics\n")

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every few seconds: not worth a line."""


def last_word(path: Path, text: str) -> None:
    """Leave the message that explains this program's end: whole or not at all, at most 4096 bytes.

    Never raises: it is called when something has gone wrong already.
    """
    data = text.encode(errors="replace")
    if len(data) > LAST_WORD_BYTES:
        data = data[: LAST_WORD_BYTES - 3].decode(errors="ignore").encode() + "…".encode()
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_bytes(data)
        os.replace(scratch, path)
    except OSError:
        # Kubernetes mounts the file itself, so it cannot be replaced, only written: one write.
        with contextlib.suppress(OSError):
            scratch.unlink()
        with contextlib.suppress(OSError):
            path.write_bytes(data)
