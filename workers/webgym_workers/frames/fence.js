// Installed at document start in pages whose frames are read from the screen. What the page looked like when it was read
// is on the screen as soon as a mark is that was painted after it: both travel in one frame, or the mark in a later one.
//
// The mark is a square of two CSS pixels in the viewport's lower right corner, in the top layer, out of reach of the
// page's styles; what is painted in it is in a closed shadow tree, so no observer of the page sees it change.
//
// Everything used later is captured here, before the page's own scripts run and can replace it.
(() => {
  if (globalThis.__webgym_fence || !globalThis.document) return;
  const { apply } = Reflect;
  let doc = document;
  const create = Document.prototype.createElement, append = Node.prototype.appendChild,
    attach = Element.prototype.attachShadow, setProperty = CSSStyleDeclaration.prototype.setProperty,
    showPopover = HTMLElement.prototype.showPopover, matches = Element.prototype.matches;
  const isConnected = Object.getOwnPropertyDescriptor(Node.prototype, 'isConnected').get;
  const root = Object.getOwnPropertyDescriptor(Document.prototype, 'documentElement').get;
  const styleOf = Object.getOwnPropertyDescriptor(HTMLElement.prototype, 'style').get;
  const popover = Object.getOwnPropertyDescriptor(HTMLElement.prototype, 'popover');
  const style = (element, values) => {
    const declared = apply(styleOf, element, []);
    for (const name in values) apply(setProperty, declared, [name, values[name], 'important']);
  };
  let host = null, dot = null;

  const make = () => {
    host = apply(create, doc, ['webgym-fence']);
    dot = apply(create, doc, ['div']);
    style(host, { all: 'initial', display: 'block', position: 'fixed', inset: 'auto 0 0 auto', width: '2px',
      height: '2px', overflow: 'hidden', 'pointer-events': 'none', 'z-index': '2147483647' });
    style(dot, { width: '2px', height: '2px' });
    apply(append, apply(attach, host, [{ mode: 'closed' }]), [dot]);
    if (popover) apply(popover.set, host, ['manual']);
  };

  /** Paint the mark in a colour; false where there is no page to paint it on. */
  const fence = (color) => {
    // A popup's first blank document gives its window, and this script, to the one that it was opened for.
    if (doc !== document) { doc = document; host = null; }
    if (!(apply(root, doc, []) instanceof HTMLElement)) return false;
    if (!host) make();
    if (!apply(isConnected, host, [])) apply(append, apply(root, doc, []), [host]);
    if (popover && !apply(matches, host, [':popover-open'])) apply(showPopover, host, []);
    style(dot, { background: color });
    return true;
  };
  Object.defineProperty(globalThis, '__webgym_fence', { value: fence });
})();
