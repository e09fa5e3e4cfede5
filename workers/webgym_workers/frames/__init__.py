"""Pictures of pages from shared memory: what the browser drew is read where the X server keeps it.

From the bottom up: ``x11`` (the protocol), ``framebuffer`` (the server's screen as an array), ``display`` (one Xvfb per
browser), ``calibration`` (where on the screen the page is), ``resize`` (screen to policy's frame in one go), ``ring``
(where frames lie for the inference process), ``screen`` (frames that show the settled page, never two halves of two),
``screenshot`` (the way without Xvfb), ``source`` (which of the two it is).
"""
