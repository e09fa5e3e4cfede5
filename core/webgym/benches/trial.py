"""A whole ``webgym run`` as one measurement: played once, kept in a folder, and not played again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webgym.errors import RunError

__all__ = ["Trial"]

_BESIDES_SECONDS = 600.0
"""Browsers that start, evaluation and report: what a run may take besides its training."""


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        folder: Its run directory; the manifest lies beside it.
        seconds: Training that its manifest allows.
    """

    folder: Path
    seconds: float

    @property
    def finished(self) -> bool:
        """Whether it was played to its end, by this process or an earlier one."""
        return (self.folder / "summary.json").exists() and self.summary()["exit_code"] == 0

    def summary(self) -> dict[str, Any]:
        """What ``webgym run --json`` said of it."""
        found: dict[str, Any] = json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))
        return found

    def lines(self) -> list[dict[str, Any]]:
        """Its metrics, from the first step on."""
        from webgym.rundir import read_json_lines

        found = read_json_lines(self.folder / "metrics.jsonl")
        return [line for line in found if line.get("seconds") is not None]

    async def play(self, manifest: Mapping[str, Any]) -> None:
        """Run it; what an interrupted run left in its folder is removed.

        Raises:
            RunError: it failed, with its last word.
            TimeoutError: it took far longer than its training may.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        file = self.folder.with_name(f"{self.folder.name}.json")
        file.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "webgym", "run", str(file)),
            *("--out", str(self.folder), "--json", "--quiet"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(self.seconds + _BESIDES_SECONDS):
                _, said = await process.communicate()
        except BaseException:
            # Its supervisor ends everything it started.
            os.kill(process.pid, signal.SIGTERM)
            await process.wait()
            raise
        if process.returncode:
            last = said.decode(errors="replace").strip().splitlines()[-1:]
            raise RunError(f"{file.name} failed: {''.join(last)}; see {self.folder}")
