"""What is said again to a tab after a reconnect."""

from __future__ import annotations

from typing import Any

from webgym_workers.browser.journal import ADD_SCRIPT, SessionJournal

Said = list[tuple[str, dict[str, Any]]]


def said(journal: SessionJournal, *, rerun: bool = False) -> Said:
    return [(method, params) for _, method, params in journal.to_say(rerun=rerun)]


def test_domains_and_settings_hold_as_they_were_last_said() -> None:
    journal = SessionJournal()
    for method, params in [
        ("Page.enable", {}),
        ("Network.enable", {}),
        ("Emulation.setDeviceMetricsOverride", {"width": 1}),
        ("Emulation.setTimezoneOverride", {"timezoneId": "UTC"}),
        ("Emulation.setDeviceMetricsOverride", {"width": 2}),
        ("Emulation.setLocaleOverride", {"locale": "de"}),
        ("Emulation.setGeolocationOverride", {"latitude": 1}),
        ("Emulation.clearGeolocationOverride", {}),
        ("Runtime.enable", {}),
        ("Runtime.disable", {}),
        ("Input.dispatchMouseEvent", {"type": "mousePressed"}),
        ("Page.navigate", {"url": "about:blank"}),
        ("Network.setCookie", {"name": "a"}),
        ("Runtime.evaluate", {"expression": "1"}),
    ]:
        journal.note(method, params, {})
    assert said(journal) == [
        ("Page.enable", {}),
        ("Network.enable", {}),
        ("Emulation.setTimezoneOverride", {"timezoneId": "UTC"}),
        ("Emulation.setDeviceMetricsOverride", {"width": 2}),
        ("Emulation.setLocaleOverride", {"locale": "de"}),
    ]


def test_scripts_keep_the_ids_that_callers_know() -> None:
    journal = SessionJournal()
    script = {"source": "1", "runImmediately": True}
    journal.note(ADD_SCRIPT, script, {"identifier": "1"})
    journal.note(ADD_SCRIPT, {"source": "2"}, {"identifier": "2"})
    assert said(journal, rerun=False) == [
        (ADD_SCRIPT, {"source": "1", "runImmediately": False}),
        (ADD_SCRIPT, {"source": "2"}),
    ]
    assert said(journal, rerun=True)[0] == (ADD_SCRIPT, script)
    # The browser numbers anew, and in another order.
    for key, id in zip([key for key, _, _ in journal.to_say(rerun=False)], ["2", "1"], strict=True):
        journal.said(key, {"identifier": id})
    remove = journal.translate("Page.removeScriptToEvaluateOnNewDocument", {"identifier": "1"})
    assert remove == {"identifier": "2"}
    journal.note("Page.removeScriptToEvaluateOnNewDocument", remove, {})
    assert said(journal) == [(ADD_SCRIPT, {"source": "2"})]


def test_contexts_that_were_made_are_known_until_they_are_disposed_of() -> None:
    journal = SessionJournal()
    for id in ("A", "B"):
        journal.note("Target.createBrowserContext", {}, {"browserContextId": id})
        journal.note("Browser.setDownloadBehavior", {"behavior": "deny", "browserContextId": id}, {})
    journal.note("Target.disposeBrowserContext", {"browserContextId": "A"}, {})
    assert journal.contexts == {"B"}
    assert said(journal) == [("Browser.setDownloadBehavior", {"behavior": "deny", "browserContextId": "B"})]
