// Installed at document start in every page. Reads the page into a list of nodes that Python turns into features,
// finds the point to click for a node, and scrolls. It never changes what the page sees, but for addEventListener,
// which it wraps to learn which elements react to clicks.
(() => {
  if (globalThis.__webgym_observer) return;
  const MAX_VISITED = 6000, MAX_DEPTH = 400, MAX_SEARCHES = 300, MAX_TEXT = 160, MAX_CONTEXT = 240, MAX_TEXT_TESTS = 64,
    MAX_OPTIONS = 2000, MAX_FOUND = 1000;
  const CLICK = 1, DOUBLE = 2, HOVER = 4;
  const EVENT_BITS = {
    click: CLICK, mousedown: CLICK, mouseup: CLICK, pointerdown: CLICK, pointerup: CLICK, touchend: CLICK,
    dblclick: DOUBLE, mouseover: HOVER, mouseenter: HOVER, mousemove: HOVER, pointerenter: HOVER, pointerover: HOVER,
  };
  const FLAG = {
    interactive: 1, checked: 2, focused: 4, disabled: 8, hit: 16, offscreen: 32, dblclick: 64, hover: 128,
    editable: 256, multiple: 512, readonly: 1024,
  };
  const { stringify } = JSON;
  const listeners = new WeakMap();
  const ids = new WeakMap();
  const elements = new Map();
  // No two documents give the same number to an element: what an agent remembers of one must not be taken for another.
  let nextId = crypto.getRandomValues(new Uint32Array(1))[0] * 2 ** 20 + 1;
  let targetPoints = new Map();
  let scrollers = [];
  let searches = 0;
  // Size of the window, CSS pixels. Asking for it makes the browser see to its layout, so it is asked once a reading.
  let viewWidth = 0, viewHeight = 0;
  const measureView = () => { viewWidth = innerWidth; viewHeight = innerHeight; };

  const add = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, handler, options) {
    const bit = EVENT_BITS[type];
    if (bit && this instanceof Element) listeners.set(this, (listeners.get(this) || 0) | bit);
    return add.call(this, type, handler, options);
  };

  // A frame of the same origin has a script of its own that has seen its elements' listeners.
  const listened = (el) => {
    if (el.ownerDocument === document) return listeners.get(el) || 0;
    const other = el.ownerDocument.defaultView && el.ownerDocument.defaultView.__webgym_observer;
    return other ? other.listenersOf(el) : 0;
  };
  const reacts = (el) => {
    let bits = listened(el);
    if (el.onclick || el.onmousedown || el.onmouseup) bits |= CLICK;
    if (el.ondblclick) bits |= DOUBLE;
    if (el.onmouseover || el.onmouseenter || el.onmousemove) bits |= HOVER;
    return bits;
  };
  const squash = (s) => s.replace(/\s+/g, ' ').trim();
  const idOf = (el) => {
    let id = ids.get(el);
    if (!id) { id = nextId++; ids.set(el, id); elements.set(id, new WeakRef(el)); }
    return id;
  };
  const elementOf = (id) => {
    const ref = elements.get(id);
    const el = ref && ref.deref();
    return el && el.isConnected && el.ownerDocument.defaultView ? el : null;
  };

  // Where an element stands on the whole page: frames of the same origin and open shadow roots are part of it. Frames of
  // other origins, and those that a transform or zoom bends, are read by their own observers and put in place by ours.
  const isFrame = (el) => el.tagName === 'IFRAME' || el.tagName === 'FRAME';
  let bent = new WeakMap();
  const isBent = (frame) => {
    let known = bent.get(frame);
    if (known === undefined) {
      known = false;
      for (let p = frame; p && !known; p = parentOf(p)) {
        if (p.nodeType !== 1) continue;
        const s = getComputedStyle(p);
        known = s.scale !== 'none' || s.rotate !== 'none' || s.perspective !== 'none' || s.zoom !== '1' || s.offsetPath !== 'none' ||
          s.transform !== 'none' && !s.transform.startsWith('matrix(1, 0, 0, 1,');
      }
      bent.set(frame, known);
    }
    return known;
  };
  const innerDocument = (el) => (isFrame(el) && el.contentDocument && !isBent(el) ? el.contentDocument : null);
  const frameOf = (doc) => (doc !== document && doc.defaultView ? doc.defaultView.frameElement : null);
  const innerCorner = (frame) => {
    const r = frame.getBoundingClientRect(), style = getComputedStyle(frame);
    return [r.left + frame.clientLeft + parseFloat(style.paddingLeft), r.top + frame.clientTop + parseFloat(style.paddingTop)];
  };
  const onPage = (r, doc) => {
    let { left, top } = r;
    for (let frame = frameOf(doc); frame; frame = frameOf(frame.ownerDocument)) {
      const [x, y] = innerCorner(frame);
      left += x; top += y;
    }
    return new DOMRect(left, top, r.width, r.height);
  };
  const rectOf = (el) => {
    const r = el.getBoundingClientRect();
    return el.ownerDocument === document ? r : onPage(r, el.ownerDocument);
  };
  // An element with "display: contents" has no box, only what is in it.
  const contentsRect = (el) => {
    const range = el.ownerDocument.createRange();
    range.selectNodeContents(el);
    return onPage(range.getBoundingClientRect(), el.ownerDocument);
  };
  // What can be clicked of a link without a box of its own: around a floated image, say.
  const boxOf = (el) => {
    const r = rectOf(el);
    return r.width > 0 && r.height > 0 || !el.firstChild || el.getClientRects().length > 1 ? r : contentsRect(el);
  };
  const parentOf = (n) => n.assignedSlot || n.parentNode || n.host || (n.nodeType === 9 ? frameOf(n) : null);
  const childNodesOf = (el) => {
    if (el.shadowRoot) return el.shadowRoot.childNodes;
    const assigned = el.tagName === 'SLOT' ? el.assignedNodes() : [];
    return assigned.length ? assigned : el.childNodes;
  };
  const mayHoldElements = (el) => el.firstElementChild || el.shadowRoot || el.tagName === 'SLOT';
  const focusedElement = () => {
    let el = document.activeElement;
    while (el) {
      const doc = innerDocument(el);
      const inner = el.shadowRoot ? el.shadowRoot.activeElement : doc && doc.activeElement;
      if (!inner) break;
      el = inner;
    }
    return el;
  };
  const isStructural = (el) => el === el.ownerDocument.body || el === el.ownerDocument.documentElement;

  const NATIVE = new Set(['A', 'BUTTON', 'INPUT', 'SELECT', 'TEXTAREA', 'SUMMARY', 'OPTION']);
  const ROLES = new Set(['button', 'link', 'tab', 'menuitem', 'checkbox', 'radio', 'option', 'switch', 'treeitem',
    'textbox', 'searchbox', 'combobox', 'slider', 'spinbutton', 'menuitemcheckbox', 'menuitemradio']);
  const SKIP = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'META', 'LINK', 'HEAD', 'TITLE', 'BR', 'DEFS']);
  const EDITABLE_TYPES = new Set(['text', 'search', 'password', 'email', 'url', 'tel', 'number', 'date', 'time',
    'datetime-local', 'month', 'week', 'color', 'input', '']);

  const isEditable = (el) => el.isContentEditable || el.tagName === 'TEXTAREA' ||
    (el.tagName === 'INPUT' && EDITABLE_TYPES.has(el.type));
  // Many pages hide a checkbox and draw its label in its stead; then the label is what there is to click.
  const standsFor = (label) => {
    const control = label.tagName === 'LABEL' ? label.control : null;
    if (!control) return null;
    const r = control.getBoundingClientRect();
    const seen = r.width > 2 && r.height > 2 && control.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    return seen ? null : control;
  };
  // A field's own list of its labels is looked for in the whole document each time; here all are found at once.
  let labels = new WeakMap();
  let clips = new WeakMap();
  const LABELABLE = new Set(['BUTTON', 'INPUT', 'METER', 'OUTPUT', 'PROGRESS', 'SELECT', 'TEXTAREA']);
  const DISABLEABLE = new Set([...LABELABLE, 'OPTION', 'OPTGROUP', 'FIELDSET']);
  // Elements of a page's own making may be part of forms, too.
  const isCustom = (el) => el.tagName.includes('-');
  const isLabelable = (el) => LABELABLE.has(el.tagName) || isCustom(el);
  const labelsOf = (el) => {
    if (!isLabelable(el)) return [];
    const root = el.getRootNode();
    let known = labels.get(root);
    if (!known) {
      known = new Map();
      for (const label of root.querySelectorAll ? root.querySelectorAll('label') : []) {
        const { control } = label;
        if (control) known.set(control, [...(known.get(control) || []), label]);
      }
      labels.set(root, known);
    }
    return known.get(el) || [];
  };
  const isToggle = (el) => el.tagName === 'INPUT' && (el.type === 'checkbox' || el.type === 'radio');
  // Most elements of a large page have no attributes at all: one question instead of one for each.
  const isNative = (el) => {
    const { tagName } = el;
    if (NATIVE.has(tagName) && !(tagName === 'A' && !el.hasAttribute('href') && !reacts(el))) return true;
    return el.hasAttributes() && (ROLES.has(el.getAttribute('role')) || (el.hasAttribute('tabindex') && el.tabIndex >= 0) ||
      el.isContentEditable && !(el.parentElement && el.parentElement.isContentEditable)) || standsFor(el) !== null;
  };

  const directText = (el) => {
    // Nothing but text: at hand without an object for each of its pieces.
    if (!mayHoldElements(el)) return squash(el.textContent);
    let text = '';
    for (const child of childNodesOf(el)) {
      if (child.nodeType === 3) text += child.data;
      // A slot has no box of its own: the words put into it are its parent's.
      else if (child.tagName === 'SLOT') for (const put of childNodesOf(child)) if (put.nodeType === 3) text += put.data;
    }
    return squash(text);
  };

  // What a person reads beside a field: its label, else what stands before it in the same row.
  const labelOf = (el, skipped) => {
    const own = labelsOf(el);
    if (own.length) return squash(own.map((l) => l.textContent).join(' '));
    if (!el.hasAttributes() && !isLabelable(el)) return '';
    const by = el.getAttribute('aria-labelledby');
    if (by) {
      const text = by.split(/\s+/).map((i) => { const e = el.getRootNode().getElementById(i); return e ? e.textContent : ''; });
      if (squash(text.join(' '))) return squash(text.join(' '));
    }
    const said = el.getAttribute('aria-label') || el.getAttribute('placeholder') || el.getAttribute('title') ||
      el.getAttribute('alt');
    if (said) return squash(said);
    if (!(el.tagName === 'INPUT' || el.tagName === 'SELECT' || el.tagName === 'TEXTAREA')) return '';
    if (el.tagName === 'INPUT' && (el.type === 'submit' || el.type === 'button')) return '';
    for (let at = el, up = 0; at && up < 3; at = at.parentElement, up++) {
      for (let s = at.previousSibling; s; s = s.previousSibling) {
        if (s.nodeType === 1 && (skipped.has(s) || isNative(s) || s.querySelector('input,select,textarea,button,a'))) return '';
        const text = s.nodeType === 3 ? squash(s.data) : s.nodeType === 1 && !SKIP.has(s.tagName) ? squash(s.textContent) : '';
        if (text) return text;
      }
      if (at.parentElement === at.ownerDocument.body) break;
    }
    return '';
  };

  const attributeWords = (el) => {
    const words = [];
    if (el.hasAttributes()) words.push(el.getAttribute('type'), el.getAttribute('role'), el.id, el.getAttribute('name'),
      el.getAttribute('class'), el.getAttribute('title'), el.getAttribute('alt'), el.getAttribute('aria-label'));
    if (el.firstElementChild && el.childElementCount <= 2 && !directText(el)) {
      for (const child of el.children) words.push(child.getAttribute('class'), child.getAttribute('alt'));
    }
    return squash(words.filter(Boolean).join(' ')).slice(0, MAX_TEXT);
  };

  // Date and time fields keep ISO values and show them as people write them; the agent reads and writes what is shown.
  const shownValue = (el) => {
    const value = String(el.value === undefined ? el.textContent : el.value);
    if (el.tagName !== 'INPUT' || !value) return value;
    if (el.type === 'date') return value.replace(/^(\d{4})-(\d\d)-(\d\d)$/, '$2/$3/$1');
    const time = el.type === 'time' && /^(\d\d):(\d\d)/.exec(value);
    if (!time) return value;
    return `${+time[1] % 12 || 12}:${time[2]} ${+time[1] < 12 ? 'AM' : 'PM'}`;
  };
  const storedValue = (el, text) => {
    const date = el.type === 'date' && /^(\d{1,2})\/(\d{1,2})\/(\d{4})$/.exec(text);
    if (date) return `${date[3]}-${date[1].padStart(2, '0')}-${date[2].padStart(2, '0')}`;
    const time = el.type === 'time' && /^(\d{1,2}):(\d\d)\s*([ap])m?$/i.exec(text);
    if (!time) return text;
    const hour = +time[1] % 12 + (time[3].toLowerCase() === 'p' ? 12 : 0);
    return `${String(hour).padStart(2, '0')}:${time[2]}`;
  };

  const stateOf = (el) => {
    if (el.checked === true || (el.tagName === 'OPTION' && el.selected)) return true;
    if (!el.hasAttributes()) return false;
    for (const name of ['aria-checked', 'aria-selected', 'aria-pressed', 'aria-expanded'])
      if (el.getAttribute(name) === 'true') return true;
    return /(^|[\s-])(active|selected|checked)(\s|$)/.test(el.getAttribute('class') || '');
  };

  // The style first: it is at hand, and rules out nearly all, where sizes are looked up in the layout.
  const scrollable = (el, style = getComputedStyle(el)) => {
    const overflow = style.overflowY;
    const may = el === el.ownerDocument.scrollingElement ? overflow !== 'hidden'
      : el.tagName === 'TEXTAREA' || overflow === 'auto' || overflow === 'scroll';
    return may && el.clientHeight >= 12 && el.scrollHeight - el.clientHeight >= 4;
  };

  const contains = (el, other) => {
    for (let n = other; n; n = parentOf(n)) if (n === el) return true;
    return false;
  };
  const deepestAt = (x, y) => {
    let found = document.elementFromPoint(x, y);
    while (found) {
      const doc = innerDocument(found);
      if (doc) { const [left, top] = innerCorner(found); x -= left; y -= top; }
      const root = found.shadowRoot || doc;
      const inner = root && root.elementFromPoint(x, y);
      if (!inner || inner === found) break;
      found = inner;
    }
    return found;
  };
  // A point counts as the element's own when the browser would deliver a click there to it, or to its label.
  const owns = (el, x, y) => delivers(el, deepestAt(x, y));
  const delivers = (el, found) => {
    if (!found) return false;
    if (contains(el, found)) return true;
    return labelsOf(el).some((l) => contains(l, found)) && !isNative(found);
  };
  const encloses = (outer, r) =>
    outer.left <= r.left && outer.top <= r.top && outer.right >= r.right && outer.bottom >= r.bottom;
  const inView = (r) => r.right > 0 && r.bottom > 0 && r.left < viewWidth && r.top < viewHeight;
  const middle = (r) => [
    (Math.max(r.left, 0) + Math.min(r.right, viewWidth)) / 2,
    (Math.max(r.top, 0) + Math.min(r.bottom, viewHeight)) / 2,
  ];
  // Tried in turn: another element may cover the middle of one that can be clicked well enough beside it.
  const SPOTS = [
    [0.2, 0.5], [0.8, 0.5], [0.5, 0.2], [0.5, 0.8], [0.1, 0.15], [0.9, 0.15], [0.1, 0.85], [0.9, 0.85],
    [0.5, 0], [0.5, 1], [0, 0.5], [1, 0.5], [0.1, 0], [0.9, 0], [0.1, 1], [0.9, 1], [0, 0.1], [0, 0.9], [1, 0.1], [1, 0.9],
  ];
  const hitPoint = (el, r) => {
    if (r.width <= 0 || r.height <= 0 || !inView(r)) return null;
    const [x, y] = middle(r);
    const found = deepestAt(x, y);
    if (delivers(el, found)) return { x, y };
    // Behind a cover that leaves nothing of it to see, such as the one over a page that is done, no spot is worth a try.
    if (found && !contains(found, el) && encloses(rectOf(found), r)) return null;
    if (++searches > MAX_SEARCHES) return null;
    // The lines of a link that wraps: the middle of all may be beside each.
    const lines = el.ownerDocument === document ? el.getClientRects() : [];
    for (let i = 0; i < lines.length && i < 4 && lines.length > 1; i++) {
      const [lx, ly] = middle(lines[i]);
      if (inView(lines[i]) && owns(el, lx, ly)) return { x: lx, y: ly };
    }
    for (const [fx, fy] of SPOTS) {
      // A pixel inside the border at the least: often all that another element leaves to see is a strip at the edge.
      const px = Math.min(Math.max(r.left + r.width * fx, r.left + 1), r.right - 1);
      const py = Math.min(Math.max(r.top + r.height * fy, r.top + 1), r.bottom - 1);
      if (px >= 0 && py >= 0 && px < viewWidth && py < viewHeight && owns(el, px, py)) return { x: px, y: py };
    }
    return null;
  };
  // What an element lets be seen of its content where that is larger.
  const clipOf = (el) => {
    const tall = el.scrollHeight > el.clientHeight + 2, wide = el.scrollWidth > el.clientWidth + 2;
    if (!tall && !wide) return null;
    const style = getComputedStyle(el), b = el.getBoundingClientRect();
    const down = tall && style.overflowY !== 'visible', across = wide && style.overflowX !== 'visible';
    return { top: down ? b.top : -Infinity, bottom: down ? b.bottom : Infinity,
      left: across ? b.left : -Infinity, right: across ? b.right : Infinity };
  };
  // The clips that an element is in, which are those of its neighbours; kept for as long as one reading takes.
  const clipsAround = (el) => {
    const p = parentOf(el);
    if (!p || p === el.ownerDocument.documentElement) return [];
    let around = clips.get(p);
    if (!around) {
      const clip = p.nodeType === 1 ? clipOf(p) : null;
      around = clip ? [clip, ...clipsAround(p)] : clipsAround(p);
      clips.set(p, around);
    }
    return around;
  };
  // Scrolled out of something that holds it, a frame maybe.
  const clipped = (el, r = el.getBoundingClientRect()) =>
    clippedAt(el, r.left + r.width / 2, r.top + r.height / 2);
  const clippedAt = (el, x, y) => {
    for (const clip of clipsAround(el)) {
      if (y < clip.top || y > clip.bottom || x < clip.left || x > clip.right) return true;
    }
    const frame = frameOf(el.ownerDocument);
    if (!frame) return false;
    const { innerWidth: width, innerHeight: height } = el.ownerDocument.defaultView;
    return x < 0 || y < 0 || x > width || y > height || clipped(frame);
  };

  // Under a bar that stays where it is while the page scrolls: scrolling brings it out.
  const underBar = (r) => {
    const root = document.scrollingElement;
    if (!root || root.scrollHeight <= viewHeight + 1) return false;
    for (let p = deepestAt(...middle(r)); p; p = parentOf(p)) {
      if (p.nodeType !== 1) continue;
      const { position } = getComputedStyle(p);
      if (position === 'fixed' || position === 'sticky') return p.getBoundingClientRect().height < viewHeight / 2;
    }
    return false;
  };

  // Menus open where the mouse rests, and mostly listen for that on the menu as a whole.
  const hasPopup = (el) => (el.getAttribute('aria-haspopup') || 'false') !== 'false';
  const opensOnHover = (el) => el.getAttribute('role') === 'menuitem' || hasPopup(el);

  // A drawing is one node, an icon mostly, unless what is drawn takes clicks of its own.
  const MAX_PARTS = 200;
  const hasParts = (svg) => {
    const parts = svg.getElementsByTagName('*');
    for (let i = 0; i < parts.length && i < MAX_PARTS; i++) if (reacts(parts[i]) & (CLICK | DOUBLE)) return true;
    return false;
  };

  const observe = (exclude, inFrame) => {
    const nodes = [], texts = [], frames = [];
    measureView();
    bent = new WeakMap();
    labels = new WeakMap();
    clips = new WeakMap();
    scrollers = [];
    searches = 0;
    const skipped = exclude ? new Set(document.querySelectorAll(exclude)) : new Set();
    const active = focusedElement();
    let visited = 0, truncated = false;
    targetPoints = new Map();

    const emit = (list, el, rect, text, bits, kind, target) => {
      const id = idOf(el);
      if (target) targetPoints.set(id, target);
      list.push({ el, id, rect, text: text.slice(0, MAX_TEXT), bits, kind });
    };

    // Returns what can be read below el, outside nodes of their own (for a container's own text), and whether there are nodes.
    const walk = (el, inside, depth) => {
      if (++visited > MAX_VISITED || depth > MAX_DEPTH) { truncated = true; return ['', 0, null]; }
      const { tagName } = el;
      if (SKIP.has(tagName) || skipped.has(el)) return ['', 0, null];
      const style = getComputedStyle(el), { display } = style;
      if (display === 'none' || +style.opacity <= 0.01) return ['', 0, null];
      const native = isNative(el);
      const boxless = display === 'contents' || (display === 'inline' && native);
      const rect = boxless ? boxOf(el) : rectOf(el);
      const before = texts.length;
      const least = isToggle(el) && labelsOf(el).length ? 2 : 0;
      const shown = style.visibility === 'visible' && rect.width > least && rect.height > least;
      const structural = isStructural(el);
      if (!structural && scrollable(el, style)) scrollers.push(el);
      const bits = reacts(el);
      const mine = native || (bits & (CLICK | DOUBLE | HOVER)) !== 0 ||
        (style.cursor === 'pointer' && el.parentElement && getComputedStyle(el.parentElement).cursor !== 'pointer');
      const taken = mine && !structural && shown && !style.cursor.endsWith('-resize');
      let text = '', readable = '', inner = 0, firstLeaf = null;
      const atom = tagName === 'SELECT' || tagName === 'TEXTAREA' || tagName === 'svg' && taken && !hasParts(el);
      if (!atom) {
        const doc = innerDocument(el), slot = tagName === 'SLOT';
        const own = shown && !slot && tagName !== 'IFRAME' ? directText(el) : '';
        // Without elements in it there is nothing to go into; frames have no element in them either.
        let children = mayHoldElements(el) ? childNodesOf(el) : [];
        if (children.length && (tagName === 'IFRAME' || style.contentVisibility === 'hidden')) children = [];
        // What a closed "details" holds has a box all the same.
        else if (tagName === 'DETAILS' && !el.open) children = [...el.children].filter((c) => c.tagName === 'SUMMARY').slice(0, 1);
        if (doc && doc.body && shown) {
          children = [doc.body];
          if (doc.scrollingElement && scrollable(doc.scrollingElement)) scrollers.push(doc.scrollingElement);
        } else if (shown && isFrame(el) && (!el.contentDocument || isBent(el))) {
          frames.push([idOf(el), nodes.length, texts.length, rect.width * rect.height]);
        }
        for (const child of children) {
          if (child.nodeType !== 1) continue;
          const [t, n, leaf] = walk(child, inside || (taken && native), depth + 1);
          inner += n;
          if (t) text += (text ? ' ' : '') + t;
          if (leaf && !firstLeaf) firstLeaf = leaf;
        }
        if (own) { text = text ? own + ' ' + text : own; firstLeaf = el; }
        if (own && !inside && !taken && !structural) {
          const label = el.closest('label');
          if (!(label && label.control)) emit(texts, el, rect, own, bits, 'text', null);
        }
      }
      readable = squash(text).slice(0, MAX_CONTEXT);
      if (el.tagName === 'INPUT' && (el.type === 'submit' || el.type === 'button')) readable = el.value;
      if (taken && !(inside && !native && !bits)) {
        const merged = el.tagName === 'LABEL' && el.control && !standsFor(el);
        if (!merged) {
          if (inner === 0 || native) {
            texts.length = before;
            emit(nodes, el, rect, readable, bits, 'node', null);
            return ['', inner + 1, firstLeaf];
          }
          const own = squash(text);
          if (own) { emit(nodes, el, rect, own, bits, 'node', firstLeaf); return ['', inner + 1, firstLeaf]; }
        }
      }
      return [shown || el.tagName === 'SLOT' ? readable : '', inner, firstLeaf];
    };
    if (elements.size > 4000) for (const [id, ref] of elements) if (!ref.deref()?.isConnected) elements.delete(id);
    if (document.body) walk(document.body, false, 0);

    // A row is the nearest ancestor that says more than the node itself, and less than the whole page: the words of a
    // table row or a list entry tell which of many equal icons is meant.
    const rows = new Map(), all = nodes.concat(texts);
    for (const n of all) {
      const t = n.text || n.el.value || '';
      for (let p = n.el.parentElement, up = 0; p && up < 6 && p !== document.body; p = p.parentElement, up++) {
        const row = rows.get(p) || { text: '', count: 0 };
        row.count++;
        if (t && row.text.length <= MAX_CONTEXT) row.text += row.text ? ' ' + t : t;
        rows.set(p, row);
      }
    }
    const rowOf = (el, own) => {
      for (let p = el.parentElement, up = 0; p && up < 6; p = p.parentElement, up++) {
        const row = rows.get(p);
        if (row && row.count >= all.length) return '';
        if (row && row.text.length > own.length) return row.text.length <= MAX_CONTEXT ? row.text : '';
      }
      return '';
    };

    // Boxes in frames were put in place on the page; there the clip is the frame's document's.
    const clippedHere = ({ el, rect }) => el.ownerDocument === document ? clipped(el, rect) : clipped(el);
    const out = [];
    let untested = MAX_TEXT_TESTS;
    for (const n of all) {
      const el = n.el, tag = el.tagName.toLowerCase();
      const control = standsFor(el) || el;
      let flags = 0;
      if (n.kind === 'node') flags |= FLAG.interactive;
      if (stateOf(control)) flags |= FLAG.checked;
      if (control === active) flags |= FLAG.focused;
      if ((DISABLEABLE.has(control.tagName) || isCustom(control)) && control.matches(':disabled') || el.getAttribute('aria-disabled') === 'true') flags |= FLAG.disabled;
      if (n.bits & DOUBLE) flags |= FLAG.dblclick;
      if (n.bits & HOVER || n.kind === 'node' && opensOnHover(el)) flags |= FLAG.hover;
      if (isEditable(el)) flags |= el.readOnly ? FLAG.readonly : FLAG.editable;
      if (tag === 'select' && el.multiple) flags |= FLAG.multiple;
      const target = targetPoints.get(n.id) || el;
      const r = target === el ? n.rect : boxOf(target);
      let point = null;
      if (!inView(r)) flags |= FLAG.offscreen;
      // Of a page full of text the first are tested; the others are taken to be seen where they are not scrolled away.
      else if (n.kind !== 'node' && --untested < 0 && !inFrame) flags |= clippedHere(n) ? FLAG.offscreen : FLAG.hit;
      else if ((point = hitPoint(el, r))) flags |= FLAG.hit;
      else if (clippedHere(n) || underBar(r)) flags |= FLAG.offscreen;
      let value = null, options = null;
      if (tag === 'select') {
        options = [...el.options].filter((o) => !o.matches(':disabled')).slice(0, MAX_OPTIONS).map((o) => squash(o.textContent).slice(0, MAX_TEXT));
        value = [...el.selectedOptions].map((o) => squash(o.textContent)).join('\n').slice(0, MAX_TEXT);
      } else if (flags & (FLAG.editable | FLAG.readonly)) {
        value = shownValue(el).slice(0, MAX_TEXT);
      }
      const style = n.kind === 'node' ? getComputedStyle(el) : null;
      let color = '';
      if (style) color = el.namespaceURI === 'http://www.w3.org/2000/svg' ? style.fill : style.backgroundColor;
      // A polygon of three corners is what people call it.
      const figure = tag === 'polygon' && el.points && el.points.numberOfItems === 3 ? 'triangle' : '';
      const popup = hasPopup(el) ? 'popup' : '';
      out.push([n.id, tag, control.type || popup || el.getAttribute('role') || figure, n.text, labelOf(el, skipped).slice(0, MAX_TEXT), attributeWords(el),
        rowOf(el, n.text), value, options, r.left, r.top, r.width, r.height, flags, color]);
      if (inFrame) out[out.length - 1].push(point && [point.x, point.y]);
    }
    const root = document.scrollingElement || document.documentElement;
    if (root && scrollable(root) && !scrollers.includes(root)) scrollers.push(root);
    // How large the largest is that can be scrolled that way.
    const area = (movable) => Math.max(0, ...scrollers.filter(movable).map((s) => s.clientWidth * s.clientHeight));
    const up = area((s) => s.scrollTop > 1);
    const down = area((s) => s.scrollTop + s.clientHeight < s.scrollHeight - 1);
    return {
      url: location.href, title: document.title, width: viewWidth, height: viewHeight,
      up, down, scroll: root && root.scrollHeight > viewHeight ? root.scrollTop / (root.scrollHeight - viewHeight) : 0,
      focused: active && !isStructural(active) ? (isEditable(active) ? 2 : 1) : 0, truncated, nodes: out,
      frames, focusedFrame: active && isFrame(active) ? idOf(active) : 0,
    };
  };

  // Where to click for a node: brought into view if it has to be, and tested, since the page may have moved since.
  const locate = (id) => {
    measureView();
    searches = 0;
    bent = new WeakMap();
    labels = new WeakMap();
    const el = elementOf(id);
    if (!el) return { error: 'gone' };
    let target = targetPoints.get(id);
    if (!target || !target.isConnected) target = el;
    const attempt = () => hitPoint(el, boxOf(target));
    const found = attempt();
    if (found) return found;
    target.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
    return attempt() || { error: 'covered' };
  };

  // For a node in a frame: all points worth a try, since what is around the frame may cover some of them.
  const spots = (id) => {
    const el = elementOf(id), r = el && boxOf(targetPoints.get(id) || el), found = [];
    for (const [fx, fy] of el ? [[0.5, 0.5], ...SPOTS] : []) {
      const x = Math.min(Math.max(r.left + r.width * fx, r.left + 1), r.right - 1);
      const y = Math.min(Math.max(r.top + r.height * fy, r.top + 1), r.bottom - 1);
      if (x >= 0 && y >= 0 && x < innerWidth && y < innerHeight && owns(el, x, y)) found.push([x, y]);
    }
    return found;
  };
  const points = (id) => {
    const first = locate(id);
    return first.error ? first : { points: [[first.x, first.y], ...spots(id)] };
  };
  // Whether the mouse is over a node; it comes there with a frame.
  const hovered = async (id) => {
    const el = elementOf(id);
    for (let frames = 0; el && frames < 4; frames++) {
      if (el.matches(':hover') || labelsOf(el).some((l) => l.matches(':hover'))) return true;
      await new Promise((f) => { setTimeout(f, 100); requestAnimationFrame(f); });
    }
    return false;
  };
  // For each point whether a click there reaches a frame: 0 it is covered, 1 it does, 2 it is scrolled out of view.
  const reached = (id, at) => {
    bent = new WeakMap();
    clips = new WeakMap();
    const el = elementOf(id);
    return at.map(([x, y]) => {
      if (!el) return 0;
      if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) return 2;
      if (deepestAt(x, y) === el) return 1;
      const { x: left, y: top } = onPage(new DOMRect(0, 0, 0, 0), el.ownerDocument);
      return clippedAt(el, x - left, y - top) ? 2 : 0;
    });
  };
  // Scrolls what is around a frame until a point of it can be seen.
  const reveal = (id, x, y) => {
    const el = elementOf(id);
    for (let p = el && parentOf(el); p; p = parentOf(p)) {
      if (p.nodeType !== 1) continue;
      const doc = p.ownerDocument, whole = p === doc.documentElement, moves = whole ? doc.scrollingElement || p : p;
      const view = doc.defaultView;
      const box = whole ? onPage(new DOMRect(0, 0, view.innerWidth, view.innerHeight), doc) : rectOf(p);
      const dx = x <= box.left || x >= box.right - 1 ? x - (box.left + box.right) / 2 : 0;
      const dy = y <= box.top || y >= box.bottom - 1 ? y - (box.top + box.bottom) / 2 : 0;
      if (!dx && !dy) continue;
      const { scrollLeft, scrollTop } = moves;
      moves.scrollBy({ left: dx, top: dy, behavior: 'instant' });
      x -= moves.scrollLeft - scrollLeft;
      y -= moves.scrollTop - scrollTop;
    }
    return true;
  };

  const scroll = (direction) => {
    const list = scrollers.filter((s) => s.isConnected && (direction < 0
      ? s.scrollTop > 1 : s.scrollTop + s.clientHeight < s.scrollHeight - 1));
    if (!list.length) return false;
    list.sort((a, b) => b.clientWidth * b.clientHeight - a.clientWidth * a.clientHeight);
    list[0].scrollBy({ top: direction * Math.max(20, list[0].clientHeight * 0.8), behavior: 'instant' });
    return true;
  };

  // Puts the caret into a field with all of it selected, so that what is typed replaces what was there.
  const selectAll = (id) => {
    const el = elementOf(id);
    if (!el) return false;
    el.focus({ preventScroll: true });
    if (el.select) el.select();
    else {
      const range = el.ownerDocument.createRange(), selection = el.ownerDocument.getSelection();
      range.selectNodeContents(el);
      selection.removeAllRanges();
      selection.addRange(range);
    }
    return focusedElement() === el;
  };

  const setValue = (el, value) => {
    const proto = el.tagName === 'TEXTAREA' ? HTMLTextAreaElement.prototype : HTMLInputElement.prototype;
    Object.getOwnPropertyDescriptor(proto, 'value').set.call(el, value);
    el.dispatchEvent(new Event('input', { bubbles: true }));
    el.dispatchEvent(new Event('change', { bubbles: true }));
  };
  // Date, time and colour fields take no text from the keyboard as it is written; their value is set as a picker would.
  const PICKERS = new Set(['date', 'time', 'datetime-local', 'month', 'week', 'color']);
  const prepareTyping = (id, text) => {
    const el = elementOf(id);
    if (!el) return 'gone';
    if (el.tagName === 'INPUT' && PICKERS.has(el.type)) {
      setValue(el, storedValue(el, text));
      return el.value ? 'set' : 'not a value for this field';
    }
    return selectAll(id) ? 'type' : 'unfocusable';
  };
  const clear = (id) => {
    const el = elementOf(id);
    if (el && el.tagName === 'INPUT' && PICKERS.has(el.type)) { setValue(el, ''); return true; }
    return selectAll(id) && el.ownerDocument.execCommand('delete');
  };

  const choose = (id, text) => {
    const el = elementOf(id);
    if (!el || el.tagName !== 'SELECT') return false;
    const wanted = squash(text).toLowerCase();
    const options = [...el.options].filter((o) => !o.matches(':disabled'));
    const option = options.find((o) => squash(o.textContent) === text) ||
      options.find((o) => squash(o.textContent).toLowerCase() === wanted);
    if (!option) return false;
    el.focus({ preventScroll: true });
    option.selected = true;
    el.dispatchEvent(new Event('input', { bubbles: true }));
    el.dispatchEvent(new Event('change', { bubbles: true }));
    return true;
  };

  // What was observed, as one text: a debugger's reply of thousands of small values takes a browser several times as long.
  // Left as it is where the page has a say in how values are written (old libraries do).
  const packed = (exclude) => {
    const answer = observe(exclude);
    return [[], {}, '', 0, false].some((value) => 'toJSON' in Object(value)) ? answer : stringify(answer);
  };

  // What a CSS selector matches, in open shadow roots and in frames of the same origin, too; rows as of observe().
  const find = (selector) => {
    const found = [], roots = [document];
    for (let at = 0, visited = 0; at < roots.length && visited < MAX_VISITED; at++) {
      found.push(...roots[at].querySelectorAll(selector));
      for (const el of roots[at].querySelectorAll('*')) {
        if (++visited > MAX_VISITED) break;
        const inner = el.shadowRoot || innerDocument(el);
        if (inner) roots.push(inner);
      }
    }
    return found.slice(0, MAX_FOUND).map((el) => {
      const r = rectOf(el), value = typeof el.value === 'string' ? shownValue(el).slice(0, MAX_TEXT) : null;
      const flags = (isNative(el) || reacts(el) ? FLAG.interactive : 0) | (isEditable(el) && !el.readOnly ? FLAG.editable : 0);
      return [idOf(el), el.tagName.toLowerCase(), el.type || '', squash(el.textContent).slice(0, MAX_TEXT), labelOf(el, new Set()),
        attributeWords(el), '', value, null, r.left, r.top, r.width, r.height, flags, ''];
    });
  };

  // Out of the page's reach: what it puts in the way costs an episode, but it cannot answer in our name by accident.
  Object.defineProperty(globalThis, '__webgym_observer', {
    value: Object.freeze({ observe, packed, locate, points, spots, hovered, reached, reveal, scroll, prepareTyping, clear, choose,
      find, element: elementOf,
      listenersOf: (el) => listeners.get(el) || 0 }),
  });
})();
