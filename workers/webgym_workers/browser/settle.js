// Installed at document start in every page: knows what the page still has going on, so that "has it come to rest?"
// is answered by events and not by waiting a while. A page that is at rest is told apart in two turns of its event
// loop, without waiting for a frame; frames are waited for only where something is due in one.
//
// Counted as going on: DOM mutations since the last turn; requested animation frames; timers due shortly; finite
// animations and transitions; loading of the document. What is not worth waiting for is let go in two ways: a chain of
// callbacks (an interval, or a timer that sets itself again), or a place in the page's code that sets timers, whose last
// IDLE_TURNS callbacks changed nothing; and what was still changing the page when a budget ran out, which becomes
// background for the rest of the document's life.
//
// A page that says so (skipWaits, for simulators that depend on nothing outside) is not waited for: its clock jumps to
// the next timer, timers fire in the order of their times, frames are called one period apart, and animations that would
// end within the budget end at once. What runs, and in which order, is as it would be; only nobody sits it out.
//
// Everything used later is captured here, before the page's own scripts run and can replace it.
(() => {
  if (globalThis.__webgym_settle || !globalThis.document) return;
  const CALM_TURNS = 2, IDLE_TURNS = 3, MAX_SITES = 1000;
  const ONE_SHOT_MS = 350;  // a timeout set from an event handler: debounced input, a menu's or a completion's delay
  const ENDLESS_SITE = 2;   // a site whose timers outlived so many budgets is background from the start
  const CHAIN_MS = 100;     // intervals, and timeouts set by timeouts: the ticks of script-driven animations
  const { apply } = Reflect;
  const nativeSetTimeout = setTimeout, nativeSetInterval = setInterval, nativeClearTimeout = clearTimeout,
    nativeClearInterval = clearInterval, nativeRaf = requestAnimationFrame, nativeCancelRaf = cancelAnimationFrame;
  const realNow = performance.now.bind(performance), NativeDate = Date, nativeDateNow = Date.now;
  let skipping = false, skipped = 0;   // milliseconds that the page's clock is ahead
  const now = () => realNow() + skipped;
  const FRAME_MS = 1000 / 60;
  const reportFault = typeof reportError === 'function' ? reportError : () => {};
  const NativePromise = Promise, NativeChannel = MessageChannel;
  const { takeRecords } = MutationObserver.prototype;
  const getAttribute = Element.prototype.getAttributeNS;
  const getAnimations = Document.prototype.getAnimations;
  const readyState = Object.getOwnPropertyDescriptor(Document.prototype, 'readyState').get;
  const mapGet = Map.prototype.get, mapSet = Map.prototype.set, mapDelete = Map.prototype.delete,
    mapClear = Map.prototype.clear, mapSize = Object.getOwnPropertyDescriptor(Map.prototype, 'size').get;
  const arrayPush = Array.prototype.push, arrayShift = Array.prototype.shift;
  const setAdd = Set.prototype.add, setDelete = Set.prototype.delete, setForEach = Set.prototype.forEach;
  const addListener = EventTarget.prototype.addEventListener, removeListener = EventTarget.prototype.removeEventListener;
  const postMessage = MessagePort.prototype.postMessage;
  const win = globalThis;
  let doc = document;

  let mutations = 0;        // counted towards unrest
  let changes = 0;          // all of them, background too
  let onChange = null;
  // Widgets like to set attributes to what they are already; that is no change. A flood is counted unread.
  const differs = (record) => record.type !== 'attributes' ||
    apply(getAttribute, record.target, [record.attributeNamespace, record.attributeName]) !== record.oldValue;
  const changed = (records, background) => {
    let n = records.length;
    if (n > 0 && n <= 200) { n = 0; for (let i = 0; i < records.length; i++) if (differs(records[i])) n++; }
    if (!n) return 0;
    changes += n;
    if (!background) mutations += n;
    if (onChange) { const f = onChange; onChange = null; f(true); }
    return n;
  };
  const observer = new MutationObserver((records) => changed(records, false));
  const { observe } = MutationObserver.prototype;
  const watch = () => apply(observe, observer, [doc, { subtree: true, childList: true, attributes: true,
    characterData: true, attributeOldValue: true }]);
  watch();
  // A popup's or frame's first blank document gives its window, and this script, to the one that it was opened for.
  const renew = () => { if (doc !== document) { doc = document; watch(); changes++; mutations++; } };
  const flush = (background) => changed(apply(takeRecords, observer, []), background);

  // A chain is what one cause keeps going: an interval, a timer that sets its successor, a frame that requests the next.
  let running = null;
  const due = new Set();    // entries {chain, at, frame, long, fire}; long ones are not waited for
  const timers = new Map(), frames = new Map();
  // A site is a place in the page's code that sets timers, known by its stack. It lives as long as the document, while
  // chains come and go: a widget's timer that closes nothing, set anew by every click, is waited for three times only.
  const sites = new Map();
  const NativeError = Error;
  const siteOf = () => {
    let { stack } = new NativeError();
    if (typeof stack !== 'string') stack = '';
    let site = apply(mapGet, sites, [stack]);
    if (!site) {
      if (apply(mapSize, sites, []) >= MAX_SITES) apply(mapClear, sites, []);
      site = { idle: 0, abandoned: 0 };
      apply(mapSet, sites, [stack, site]);
    }
    return site;
  };
  const newChain = () => {
    const site = siteOf();
    return { idle: 0, background: site.abandoned >= ENDLESS_SITE, site };
  };
  const ignored = (chain) => chain.background || chain.idle >= IDLE_TURNS || chain.site.idle >= IDLE_TURNS;
  const run = (entry, callback, self, args) => {
    flush(running !== null && running.background);
    const outer = running;
    running = entry.chain;
    try {
      return apply(callback, self, args);
    } finally {
      running = outer;
      const { chain } = entry;
      if (flush(chain.background)) chain.idle = chain.site.idle = 0;
      else { chain.idle++; chain.site.idle++; }
    }
  };
  // Where waits are skipped, time must pass between a timer and its successor.
  const delayOf = (delay) => { const n = +delay; return n > 0 ? n : skipping ? 1 : 0; };
  const forget = (table, id) => {
    const entry = apply(mapGet, table, [id]);
    if (entry) { apply(setDelete, due, [entry]); apply(mapDelete, table, [id]); }
  };

  const patchedSetTimeout = function setTimeout(handler, delay, ...args) {
    const ms = delayOf(delay), long = ms > (running ? CHAIN_MS : ONE_SHOT_MS);
    if (typeof handler !== 'function' || (long && !skipping)) {
      return apply(nativeSetTimeout, win, [handler, delay, ...args]);
    }
    const entry = { chain: long ? null : running || newChain(), at: now() + ms, frame: false, long };
    const callback = function () {
      forget(timers, id);
      return long ? apply(handler, this, args) : run(entry, handler, this, args);
    };
    const id = apply(nativeSetTimeout, win, [callback, delay]);
    entry.fire = () => { nativeClearTimeout(id); apply(callback, win, []); };
    apply(setAdd, due, [entry]);
    apply(mapSet, timers, [id, entry]);
    return id;
  };
  const patchedSetInterval = function setInterval(handler, delay, ...args) {
    const ms = delayOf(delay), long = ms > CHAIN_MS;
    if (typeof handler !== 'function' || (long && !skipping)) {
      return apply(nativeSetInterval, win, [handler, delay, ...args]);
    }
    const entry = { chain: long ? null : newChain(), at: now() + ms, frame: false, long };
    const callback = function () {
      if (skipping && now() < entry.at - 0.5) return undefined;   // it was called ahead of this tick
      entry.at = now() + ms;
      return long ? apply(handler, this, args) : run(entry, handler, this, args);
    };
    const id = apply(nativeSetInterval, win, [callback, delay]);
    entry.fire = () => apply(callback, win, []);
    apply(setAdd, due, [entry]);
    apply(mapSet, timers, [id, entry]);
    return id;
  };
  const patchedClearTimeout = function clearTimeout(id) { forget(timers, +id); return nativeClearTimeout(id); };
  const patchedClearInterval = function clearInterval(id) { forget(timers, +id); return nativeClearInterval(id); };
  const patchedRaf = function requestAnimationFrame(callback) {
    if (typeof callback !== 'function') return nativeRaf(callback);
    const entry = { chain: running || newChain(), at: 0, frame: true, long: false };
    const frameAt = (time) => {
      forget(frames, id);
      run(entry, callback, win, [time]);
    };
    const id = nativeRaf((time) => frameAt(time + skipped));
    entry.fire = () => { nativeCancelRaf(id); frameAt(now()); };
    apply(setAdd, due, [entry]);
    apply(mapSet, frames, [id, entry]);
    return id;
  };
  const patchedCancelRaf = function cancelAnimationFrame(id) { forget(frames, +id); return nativeCancelRaf(id); };
  for (const f of [patchedSetTimeout, patchedSetInterval, patchedClearTimeout, patchedClearInterval, patchedRaf,
    patchedCancelRaf]) {
    const own = Object.getOwnPropertyDescriptor(win, f.name);
    Object.defineProperty(win, f.name, { ...own, value: f });
  }

  // Intersection and resize observers report in the frame after a change: with one of them about, a change is followed
  // by a frame before the page counts as calm.
  let watchesFrames = false;
  for (const name of ['IntersectionObserver', 'ResizeObserver']) {
    const Native = win[name];
    if (!Native) continue;
    const own = Object.getOwnPropertyDescriptor(win, name);
    const Watched = new Proxy(Native, {
      construct(target, args, newTarget) { watchesFrames = true; return Reflect.construct(target, args, newTarget); },
    });
    Object.defineProperty(win, name, { ...own, value: Watched });
  }

  const channel = new NativeChannel();
  const turns = [];
  channel.port1.onmessage = () => { const f = apply(arrayShift, turns, []); if (f) f(); };
  const turn = () => new NativePromise((f) => { apply(arrayPush, turns, [f]); apply(postMessage, channel.port2, [null]); });
  const after = (ms) => new NativePromise((f) => apply(nativeSetTimeout, win, [f, ms]));
  // A frame, or 50 ms where none is drawn (a hidden tab). The turn after it lets what the frame posted run first.
  const frame = () => new NativePromise((f) => {
    const timer = apply(nativeSetTimeout, win, [f, 50]);
    nativeRaf(() => { nativeClearTimeout(timer); turn().then(f); });
  });
  const loaded = (ms) => new NativePromise((f) => {
    const done = () => { apply(removeListener, doc, ['readystatechange', done]); f(); };
    apply(addListener, doc, ['readystatechange', done]);
    apply(nativeSetTimeout, win, [done, ms]);
  });

  const letGo = new WeakSet();   // animations that outlived a budget
  let background = 0;
  let settled = 0;               // mutations counted when the page last came to rest
  const activity = () => {
    let timer = Infinity, frameDue = false;
    apply(setForEach, due, [(entry) => {
      if (entry.long || ignored(entry.chain)) return;
      if (entry.frame) frameDue = true; else if (entry.at < timer) timer = entry.at;
    }]);
    const animating = [];
    // getAnimations() brings style up to date, so transitions that a change started are seen at once.
    for (const a of apply(getAnimations, doc, [])) {
      if (a.playState !== 'running' || letGo.has(a) || a.timeline !== doc.timeline) continue;
      const end = a.effect ? a.effect.getComputedTiming().endTime : 0;
      if (end !== Infinity && a.playbackRate !== 0) apply(arrayPush, animating, [a]);
    }
    return { timer, frameDue, animating };
  };
  const abandon = () => {
    apply(setForEach, due, [({ chain, long }) => {
      if (!long && !ignored(chain)) { chain.background = true; chain.site.abandoned++; background++; }
    }]);
    for (const a of activity().animating) { letGo.add(a); background++; }
  };

  const fire = (entry) => { try { entry.fire(); } catch (fault) { reportFault(fault); } };
  /** Skip to the next timer of any kind, at most to `limit`; false where none fired until then. */
  const skipTo = (limit) => {
    let next = null;
    apply(setForEach, due, [(e) => { if (!e.frame && e.at <= limit && (!next || e.at < next.at)) next = e; }]);
    skipped += Math.max(0, (next ? next.at : limit) - now());
    if (next) fire(next);
    return next !== null;
  };
  const skipFrame = () => {
    const called = [];
    apply(setForEach, due, [(e) => { if (e.frame && !ignored(e.chain)) apply(arrayPush, called, [e]); }]);
    skipped += FRAME_MS;
    // One of them may cancel another.
    for (const e of called) if (due.has(e)) fire(e);
  };
  const remaining = (a) => {
    const { endTime } = a.effect.getComputedTiming(), rate = a.playbackRate;
    return (rate > 0 ? endTime - a.currentTime : a.currentTime) / Math.abs(rate);
  };
  /** Whether what goes on in frames was skipped; what takes longer than `left` has to be waited for. */
  const skipFrames = (frameDue, animating, left) => {
    if (frameDue) { skipFrame(); return true; }
    let longest = 0;
    for (const a of animating) longest = Math.max(longest, remaining(a));
    if (!(longest <= left)) return false;
    skipped += longest;
    for (const a of animating) a.finish();
    return false;   // their events come with the next frame
  };
  const skipWaits = () => {
    if (skipping) return;
    skipping = true;
    Object.defineProperty(Performance.prototype, 'now', { ...Object.getOwnPropertyDescriptor(Performance.prototype, 'now'),
      value: function now() { return this === win.performance ? realNow() + skipped : undefined; } });
    const dateNow = () => apply(nativeDateNow, NativeDate, []) + Math.floor(skipped);
    NativeDate.now = function now() { return dateNow(); };
    const PatchedDate = new Proxy(NativeDate, {
      construct: (target, args, made) => Reflect.construct(target, args.length ? args : [dateNow()], made),
      apply: () => new NativeDate(dateNow()).toString(),
    });
    NativeDate.prototype.constructor = PatchedDate;
    Object.defineProperty(win, 'Date', { value: PatchedDate, writable: true, configurable: true, enumerable: false });
  };

  // Frames of the same origin have scripts of their own that know what goes on in them. One may be replaced while it is
  // waited for, and never answer.
  const MAX_FRAMES = 50;
  const framesQuiet = async (left) => {
    const end = now() + left;
    let quiet = true;
    for (let i = 0; i < win.length && i < MAX_FRAMES; i++) {
      let inner = null;
      try { inner = win[i].__webgym_settle; } catch { continue; }
      if (!inner) continue;
      const rest = Math.max(0, end - now());
      quiet = await new NativePromise((f) => {
        apply(nativeSetTimeout, win, [f, rest + 20, false]);
        (async () => { f((await inner.settle(rest, 0, () => 0))[0]); })();
      }) && quiet;
    }
    return quiet;
  };

  /**
   * Wait until the page is at rest, then evaluate.
   * @param {number} budget milliseconds
   * @param {number} frames frames to wait for in any case (after input that the page sees in its next frame)
   * @param {function} read what to evaluate then
   * @returns [quiet, milliseconds, background, value]
   */
  const settle = async (budget, frames, read) => {
    const start = now();
    renew();
    let calm = 0, quiet = true, seen = settled;
    for (;;) {
      flush(false);
      const { timer, frameDue, animating } = activity();
      const loading = apply(readyState, doc, []) !== 'complete';
      const moved = seen !== mutations;
      if (moved) {
        calm = 0;
        if (watchesFrames && frames < 1) frames = 1;
        seen = mutations;
      }
      const busy = timer !== Infinity || frameDue || animating.length > 0 || loading || frames > 0;
      const left = budget - (now() - start);
      if (!busy && ++calm > CALM_TURNS) {
        if (!win.length) break;
        quiet = await framesQuiet(Math.max(0, left));
        flush(false);
        if (seen === mutations || !quiet) break;
        continue;
      }
      if (left <= 0) { quiet = false; abandon(); break; }
      if (!busy) await turn();
      else if (frames > 0) { frames--; await frame(); } else if (frameDue || animating.length) {
        await (skipping && skipFrames(frameDue, animating, left) ? turn() : frame());
      } else if (timer !== Infinity && skipping) { skipTo(Math.min(timer, now() + left)); await turn(); }
      else if (timer !== Infinity) await after(Math.min(left, Math.max(0, timer - now())));
      else await loaded(left);
    }
    settled = seen;
    const ms = now() - start;
    return [quiet, ms, background, await read()];
  };

  /** Resolves to true at the next change of the page, to false after budget milliseconds. */
  const change = async (budget) => {
    renew();
    const before = changes, end = now() + budget;
    flush(false);
    while (skipping && changes === before) {
      if (now() >= end) return false;
      skipTo(end);
      await turn();
      flush(false);
    }
    if (changes !== before) return true;
    return new NativePromise((f) => {
      onChange = f;
      apply(nativeSetTimeout, win, [() => { if (onChange === f) { onChange = null; f(false); } }, budget]);
    });
  };

  Object.defineProperty(win, '__webgym_settle', { value: Object.freeze({ settle, change, skipWaits }) });
})();
