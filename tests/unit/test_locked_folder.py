from __future__ import annotations

from pathlib import Path

import pytest

from webgym_workers.locked_folder import LockedFolder, sweep


def test_folders_of_the_dead_are_swept_and_those_of_the_living_and_of_others_left(tmp_path: Path) -> None:
    dead, other = tmp_path / "ours-dead", tmp_path / "theirs"
    for folder in (dead, other):
        folder.mkdir()
        (folder / "file").write_bytes(b"x")
    living = LockedFolder(tmp_path, "ours-")
    assert living.path.stat().st_mode & 0o077 == 0
    sweep(tmp_path, "ours-")
    assert not dead.exists()
    assert other.exists()
    assert living.path.exists()
    living.remove()
    living.remove()
    assert not living.path.exists()


def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").write_bytes(b"x")
    (tmp_path / "ours-link").symlink_to(target)
    sweep(tmp_path, "ours-")
    assert (target / "file").exists()


def test_a_place_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        LockedFolder(tmp_path / "nowhere", "ours-")
