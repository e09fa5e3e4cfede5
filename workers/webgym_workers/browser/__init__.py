"""The browser engine: Chromium processes over the DevTools pipe, pages that settle, faults with types."""
