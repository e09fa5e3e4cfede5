// Installed at document start in every page. A link to another program (tel:, sms:, an app's own scheme) makes
// Chromium ask whether to open it, in a dialog that no DevTools command can see or close and that swallows all input to
// the tab from then on. Such links do nothing here.
(() => {
  if (globalThis.__webgym_guard || !globalThis.document) return;
  Object.defineProperty(globalThis, '__webgym_guard', { value: true });
  const STAYS = new Set(['http:', 'https:', 'file:', 'data:', 'blob:', 'about:', 'javascript:', 'filesystem:', ':', '']);
  addEventListener('click', (event) => {
    for (const node of event.composedPath()) {
      if ((node instanceof HTMLAnchorElement || node instanceof HTMLAreaElement) && !STAYS.has(node.protocol)) {
        event.preventDefault();
        return;
      }
    }
  }, true);
})();
