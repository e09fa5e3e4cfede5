"""MiniWoB++ tasks, from the pages that the ``miniwob`` package ships.

An episode is dealt inside the loaded page, by seeding its random numbers and calling the page's own start function,
so a reset costs one round trip. The page's timer and the decay of its reward are off; success is the full raw reward.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from webgym.errors import TaskError
from webgym_workers.tasks.task import Json, Outcome, Task, js

__all__ = ["MiniWobTask", "miniwob_names"]

_DEAL = """
(() => {
  core.countdownTimer = () => {};
  core.EPISODE_MAX_TIME = 2147483647;
  core.canvasDrawClick = () => {};
  const display = document.getElementById('reward-display');
  if (display) display.style.display = 'none';
  if (document.activeElement && document.activeElement !== document.body) document.activeElement.blur();
  // What the episode before has left where the page's own start function does not look.
  const form = document.createElement('form');
  form.id = 'webgym-reset';
  document.body.append(form);
  for (const e of document.querySelectorAll('#area, #area *')) {
    e.scrollTop = 0;
    if (e.tagName === 'INPUT' || e.tagName === 'TEXTAREA' || e.tagName === 'SELECT') e.setAttribute('form', form.id);
  }
  const fields = [...form.elements];
  form.reset();
  form.remove();
  for (const e of fields) {
    e.removeAttribute('form');
    if (e.jscolor) { e.jscolor.hide(); e.jscolor.fromString(e.value); }
  }
  for (const e of document.querySelectorAll('.ui-helper-hidden-accessible')) e.replaceChildren();
  // The page covers itself when an episode ends. Seen through, pictures of the end show what the last action did.
  if (core.cover_div) core.cover_div.style.opacity = '0';
  Math.seedrandom(String(%(seed)s));
  core.startEpisodeReal();
  const query = document.getElementById('query');
  const bold = query ? [...query.querySelectorAll('b, .bold, strong')].map((e) => e.textContent.trim()) : [];
  const said = core.getUtterance();
  return { goal: typeof said === 'string' ? said : said.utterance, emphasised: bold };
})()
"""

_LEFTOVERS = frozenset(("chase-circle", "moving-items", "simon-says"))
"""Pages whose timers and handlers outlive an episode and would end the next one: loaded anew for each."""

_PROBE = "({done: WOB_DONE_GLOBAL, raw: WOB_RAW_REWARD_GLOBAL, reason: WOB_REWARD_REASON})"


@lru_cache(maxsize=1)
def _pages() -> Path:
    try:
        return Path(str(files("miniwob"))) / "html" / "miniwob"
    except ModuleNotFoundError:
        raise TaskError(
            "MiniWoB++ tasks need the worker extra: pip install 'webgym-platform[worker]'"
        ) from None


@lru_cache(maxsize=1)
def miniwob_names() -> tuple[str, ...]:
    """Names of all tasks whose pages the package ships, without the ``miniwob.`` prefix, sorted."""
    return tuple(sorted(p.stem for p in _pages().glob("*.html")))


class MiniWobTask(Task):
    """One MiniWoB++ task by its page's name, such as ``click-button``.

    Args:
        page: the name.
        skips_waits: whether menus open and panels slide without anybody waiting for them; see :class:`Task`.

    Raises:
        TaskError: the package ships no such page.
    """

    viewport: ClassVar[tuple[int, int]] = (320, 320)
    exclude: ClassVar[str] = "#query, #reward-display, #click-canvas, #sync-task-cover"
    probe: ClassVar[str] = _PROBE
    over: ClassVar[str] = "probe && probe.done"

    def __init__(self, page: str, *, skips_waits: bool = True) -> None:
        self.skips_waits = skips_waits
        self._page = _pages() / f"{page}.html"
        self.resets_in_page = page not in _LEFTOVERS
        if page not in miniwob_names():
            raise TaskError(f"MiniWoB++ has no task {page!r}; `webgym tasks` lists them")

    def start_page(self, seed: int) -> str:
        """The task's page, the same for every seed."""
        return self._page.as_uri()

    def setup(self, seed: int) -> str:
        """Deal the episode of this seed inside the page."""
        return _DEAL % {"seed": js(seed)}

    def judge(self, probe: Json) -> Outcome:
        """The raw reward, without decay; success is the full one."""
        if not isinstance(probe, dict) or not probe.get("done"):
            return Outcome()
        raw = float(probe.get("raw") or 0.0)
        return Outcome(reward=max(-1.0, min(1.0, raw)), done=True, success=raw >= 1.0)
