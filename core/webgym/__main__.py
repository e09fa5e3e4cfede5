"""``python -m webgym``: the same as the ``webgym`` command."""

from __future__ import annotations

import sys

from webgym.cli import main

if __name__ == "__main__":
    sys.exit(main())
