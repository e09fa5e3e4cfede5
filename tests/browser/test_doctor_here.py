"""``webgym doctor`` for real: with few fonts, without a display, and with no browser worth that name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from webgym_workers.doctor.browsers import ending_the_browser
from webgym_workers.doctor.checks import CHECKS
from webgym_workers.doctor.examination import examine
from webgym_workers.doctor.finding import Finding, Status
from webgym_workers.doctor.setting import Setting
from webgym_workers.frames.display import display_obstacle

ON_DISPLAY = ("screen", "display clicks")
OF_PYTHON = ("packages", "torch", "server")


async def examined(*left_out: str) -> dict[str, Finding]:
    """Findings by name, of all checks but some; nothing is cut off, however slow the machine."""
    setting = Setting()
    async with ending_the_browser(setting):
        checks = [replace(check, deadline=60.0) for check in CHECKS if check.name not in left_out]
        results = await examine(checks, setting, seconds=120.0)
    return {result.name: result.finding for result in results}


@pytest.fixture
def one_font(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Chromium finds no font but one without Chinese and emoji."""
    font = next(Path("/usr/share/fonts").rglob("DejaVuSans.ttf"), None)
    if font is None:
        pytest.skip("DejaVu Sans is not installed")
    fonts, config = tmp_path / "fonts", tmp_path / "fonts.conf"
    fonts.mkdir()
    (fonts / font.name).symlink_to(font)
    config.write_text(
        '<!DOCTYPE fontconfig SYSTEM "fonts.dtd">'
        f"<fontconfig><dir>{fonts}</dir><cachedir>{tmp_path / 'cache'}</cachedir></fontconfig>"
    )
    monkeypatch.setenv("FONTCONFIG_FILE", str(config))


@pytest.mark.usefixtures("one_font")
async def test_few_fonts_and_no_display(
    chromium: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WEBGYM_CHROMIUM", str(chromium))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = await examined(*OF_PYTHON)
    assert found["browser"].status is Status.OK
    assert found["fonts"].status is Status.WARNING
    drawn = [found["fonts"].numbers[name] for name in ("latin", "chinese", "korean", "emoji")]
    assert drawn == [True, False, False, False]
    assert found["display"].status is Status.WARNING
    assert {found[name].status for name in ON_DISPLAY} == {Status.SKIPPED}
    assert found["colours"].status is Status.OK
    for scale in ("1", "1.5", "2"):
        assert float(found["clicks"].numbers[f"offset_pixels_at_{scale}"] or 0) <= 1.0
    assert found["clicks"].status is Status.OK
    assert float(found["clocks"].numbers["frames_per_second"] or 0) > 0
    assert float(found["memory"].numbers["per_browser_bytes"] or 0) > 50 * 2**20


async def test_pictures_and_clicks_on_a_display(chromium: Path) -> None:
    if display_obstacle():
        pytest.skip("no Xvfb on this machine")
    found = await examined(*OF_PYTHON, "fonts", "colours", "clicks", "clocks", "memory", "shared memory",
                           "open files", "processes")  # fmt: skip
    assert [name for name in ("display", *ON_DISPLAY) if found[name].status is not Status.OK] == []


async def test_a_program_that_is_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBGYM_CHROMIUM", "/bin/true")
    found = await examined("torch")
    assert found["browser"].status is Status.FAILED
    assert "ended at once" in found["browser"].found
    assert found["browser"].mend
    drawn = ("fonts", "colours", "clicks", "clocks", "sandbox", "memory", *ON_DISPLAY)
    assert {found[name].status for name in drawn} == {Status.SKIPPED}
    assert found["server"].status is Status.OK
