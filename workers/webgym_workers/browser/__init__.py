"""The browser engine: Chromium processes over the DevTools pipe, pages that settle, faults with types.

It knows nothing of reinforcement learning and can be used on its own::

    async with BrowserPool(BrowserOptions(), 3) as pool, pool.browser(0) as browser:
        page = await browser.new_page()
        await page.navigate("https://example.org/")
        await page.click(120, 80)
        read = await page.evaluate_settled("document.title", budget=1.0)
        print(read.value, read.settled, page.dialogs, page.popups)

From the bottom up: ``find`` and ``flags`` (which program, started how), ``profile`` and ``starter`` (the operating
system's side), ``cdp`` (the protocol), ``chromium`` (one process), ``page`` with ``settle``, ``activity``,
``navigation`` and ``interruptions`` (one tab), ``pool`` (browsers that are always there), ``faults``.
"""
