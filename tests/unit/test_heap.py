"""Freed memory stays with the process: the next round of tensors faults in no pages."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_ROUNDS = """
import resource, sys
import numpy as np
from webgym_learner.heap import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for round in range(30):
    if round == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(100_000) for _ in range(20)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_page_faults_end() -> None:
    faults = {
        mode: int(subprocess.check_output([sys.executable, "-c", _ROUNDS, mode], timeout=60))
        for mode in ("keep", "default")
    }
    assert faults["keep"] < 200
    assert faults["default"] > 10 * faults["keep"]
