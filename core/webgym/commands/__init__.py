"""Subcommands of ``webgym`` that core brings. Other packages bring theirs by the entry-point group webgym.commands."""
