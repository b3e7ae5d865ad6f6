"use strict";
// What all pages share: elements, numbers, axes, small parts. A page is a document of blocks, which show/page.py
// describes; blocks.js and search.js draw each kind, page.js puts them in place, live.js receives them.
const $ = s => document.querySelector(s),
  NS = "http://www.w3.org/2000/svg";
function h(tag, at = {}, ...kids) {
  const [t, ...c] = tag.split(".");
  return fill(document.createElement(t || "div"), c.length ? { class: c.join(" "), ...at } : at, kids);
}
function s(tag, at = {}, ...kids) {
  return fill(document.createElementNS(NS, tag), at, kids);
}
function fill(e, at, kids) {
  for (const k in at)
    if (k.startsWith("on")) e.addEventListener(k.slice(2), at[k]);
    else if (at[k] != null && at[k] !== false) e.setAttribute(k, at[k]);
  e.append(...kids.flat(9).filter(k => k != null && k !== false));
  return e;
}

// What an object has itself: a function may be named toString.
const own = (o, key) => (o && Object.hasOwn(o, key) ? o[key] : undefined);

// ---- Numbers: three significant digits, thin gaps, a space before the unit ----
const group = n =>
  Math.round(n)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, "\u202f");
function n3(x) {
  const a = Math.abs(x);
  if (!a) return "0";
  const far = a >= 1e6 || a < 0.001,
    t = far ? x.toExponential(2).replace("e+", "e") : a >= 1000 ? group(Number(x.toPrecision(3))) : String(Number(x.toPrecision(3)));
  return t.replaceAll("-", "−");
}
function time(t) {
  const a = Math.abs(t);
  if (!a) return "0 s";
  if (a < 1e-3) return n3(t * 1e6) + " µs";
  if (a < 0.9995) return n3(t * 1e3) + " ms";
  if (a < 99.95) return n3(t) + " s";
  if (a < 3600) return Math.floor(t / 60) + " min " + pad(t % 60) + " s";
  return group(Math.floor(t / 3600)) + " h " + pad((t % 3600) / 60) + " min";
}
const pad = x => String(Math.floor(x)).padStart(2, "0");
function size(b) {
  const u = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  while (Math.abs(b) >= 1000 && i < 5) ((b /= 1024), i++);
  return n3(b) + " " + u[i];
}
function clock(t) {
  const d = new Date(t * 1000);
  return pad(d.getHours()) + ":" + pad(d.getMinutes()) + ":" + pad(d.getSeconds());
}
const day = t => {
  const d = new Date(t * 1000);
  return d.getFullYear() + "-" + pad(d.getMonth() + 1) + "-" + pad(d.getDate());
};
const moment = t => day(t) + " " + clock(t);
const value = v => (typeof v === "number" ? n3(v) : String(v));
const forms = { count: group, num: n3, time, bytes: size, clock, percent: v => Math.round(v * 100) + " %" };

// ---- Axes: ticks at 1, 2, 5 times powers of ten; at clock steps; on log axes at powers of ten ----
function ticks(lo, hi, n = 5) {
  if (!(hi - lo > 1e-12 * Math.max(Math.abs(lo), Math.abs(hi)))) return [lo]; // a step would be lost in rounding
  const raw = (hi - lo) / n,
    p = 10 ** Math.floor(Math.log10(raw)),
    st = p * [1, 2, 5, 10].find(m => m * p >= raw * 0.999),
    out = [];
  for (let v = Math.ceil(lo / st - 1e-9) * st; v <= hi + st * 1e-6; v += st) out.push(Number(v.toPrecision(12)));
  return out;
}
function logTicks(lo, hi) {
  const out = [],
    few = Math.log10(hi / lo) < 2.7;
  for (let e = Math.floor(Math.log10(lo)); e <= Math.log10(hi) + 1; e++)
    for (const m of few ? [1, 2, 5] : [1]) {
      const v = Number((m * 10 ** e).toPrecision(3));
      if (v >= lo * 0.999 && v <= hi * 1.001) out.push(v);
    }
  return out.length > 1 ? out : ticks(lo, hi, 3);
}
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
const stepOf = (span, n) => STEPS.find(x => span / x <= n) || 604800;
function timeTicks(span, n) {
  if (span < n) return ticks(0, span, n);
  const st = stepOf(span, n),
    out = [];
  for (let v = 0; v <= span; v += st) out.push(v);
  return out;
}
// Ticks at full minutes and hours of the clock, as seconds after `from`, each with its text.
function clockTicks(from, span, n) {
  const st = stepOf(span, n),
    zone = new Date(from * 1000).getTimezoneOffset() * 60,
    out = [];
  for (let v = Math.ceil((from - zone) / st) * st + zone; v <= from + span; v += st)
    out.push([v - from, clock(v) === "00:00:00" ? day(v).slice(5) : st < 60 ? clock(v) : clock(v).slice(0, 5)]);
  return out;
}
const axisTicks = (b, span, n) =>
  b.clock && span > 2 ? clockTicks(b.from, span, n) : timeTicks(span, n).map(t => [t, tickTime(t)]);
const tickText = v =>
  v && (Math.abs(v) < 0.001 || Math.abs(v) >= 1e5)
    ? v.toExponential(0).replace("e+", "e").replaceAll("-", "−")
    : String(Number(v.toPrecision(6))).replace("-", "−");
const short = v => (v >= 1e6 ? n3(v / 1e6) + " M" : v >= 1e4 ? n3(v / 1e3) + " k" : tickText(v));
const tickTime = t =>
  !t
    ? "0"
    : t < 1
      ? n3(t * 1000) + " ms"
      : t < 120
        ? n3(t) + " s"
        : t < 7200
          ? n3(t / 60) + " min"
          : n3(t / 3600) + " h";
function scale(lo, hi, a, b, log) {
  const f = log ? Math.log : x => x,
    l = f(lo),
    w = f(hi) - l || 1;
  return v => a + ((f(v) - l) / w) * (b - a);
}

// ---- Parts ----
let colours = {};
const colour = name => (Object.hasOwn(colours, name) ? `var(--f${colours[name]})` : "var(--other)");
const sw = name => h("i.sw", { style: "--c:" + colour(name), "aria-hidden": "true" });
function spark(v, c = "var(--accent)", max) {
  if (v.length < 2) v = [...v, ...v, 0, 0].slice(0, 2);
  max = max || Math.max(...v) * 1.15 || 1;
  const W = 120,
    H = 28,
    x = i => (i / (v.length - 1)) * W,
    y = a => H - 1.5 - Math.min(1, a / max) * (H - 3),
    d = v.map((a, i) => (i ? "L" : "M") + x(i).toFixed(1) + " " + y(a).toFixed(1)).join("");
  return s(
    "svg",
    { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    s("path", { d: d + `L${W} ${H}L0 ${H}Z`, fill: c, opacity: 0.1 }),
    s("path", {
      d,
      fill: "none",
      stroke: c,
      "stroke-width": 1.5,
      "vector-effect": "non-scaling-stroke",
      "stroke-linejoin": "round",
    }),
  );
}
const tip = h(".tip", { role: "tooltip" });
document.body.append(tip);
document.addEventListener("pointermove", e => {
  const t = e.target.closest?.("[data-tip]");
  tip.style.display = t ? "block" : "none";
  if (!t) return;
  tip.textContent = t.dataset.tip;
  tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(e.clientY + 16, innerHeight - tip.offsetHeight - 8) + "px";
});
const svg = (w, H, label) =>
  s("svg", { class: "chart", width: w, height: H, viewBox: `0 0 ${w} ${H}`, role: "img", "aria-label": label });
const line = (x1, y1, x2, y2, c = "g") => s("line", { x1, y1, x2, y2, class: c });
const text = (x, y, t, at = {}) => s("text", { x, y, ...at }, t);
// A chart is drawn for the width it has, so letters keep their size.
function chart(draw) {
  const box = h("div");
  let was = 0;
  box.redraw = () => {
    if (was) box.replaceChildren(draw(was));
  };
  new ResizeObserver(() => {
    const w = Math.floor(box.clientWidth);
    if (w && w !== was) {
      was = w;
      box.redraw();
    }
  }).observe(box);
  return box;
}
// A row of a card of failures leads to what it counts: `finds` is a table, in which its function or its text is looked for.
const rows = (list, finds) =>
  h(
    "ul.rows",
    {},
    list.map(([a, b, f]) =>
      h(
        "li",
        {},
        h("span", { title: a }, f != null && sw(f), finds ? h("a", { href: "#" + finds, onclick: () => seek(finds, f ?? a) }, a) : a),
        h("span", { title: b }, b),
      ),
    ),
  );
const seek = (id, words) => held.get(id)?.inner.show?.(words);
// A bar: [done, failed, running, of, cancelled]; without a known total `of` is null.
function meter([done, failed, running, of, cancelled = 0], c = "var(--accent)") {
  const all = of || done + failed + running + cancelled || 1,
    p = v => `width:${Math.min(100, (v / all) * 100)}%`;
  return h(
    "span.meter",
    {
      class: "meter" + (of ? "" : " unknown"),
      style: "--c:" + c,
      role: "img",
      "aria-label": of ? Math.floor(((done + failed + cancelled) / of) * 100) + " % ended" : "total unknown",
    },
    h("i", { style: p(done) }),
    failed ? h("i.fail", { style: p(failed) }) : "",
    cancelled ? h("i.gone", { style: p(cancelled) }) : "",
    running ? h("i.now", { style: p(running) + ";min-width:3px" }) : "",
  );
}
function seg(names, first, pick, label) {
  const box = h(".seg", { role: "group", "aria-label": label });
  names.forEach(n =>
    box.append(
      h(
        "button",
        {
          "aria-pressed": String(n === first),
          onclick() {
            [...box.children].forEach(b => b.setAttribute("aria-pressed", String(b === this)));
            pick(n);
          },
        },
        n,
      ),
    ),
  );
  return box;
}
const PILLS = {
  runs: "run",
  running: "run",
  ALIVE: "run",
  CONNECTED: "run",
  waits: "hollow",
  waiting: "hollow",
  done: "hollow",
  idle: "hollow",
  TERMINATED: "hollow",
  RUNNING: "run",
  failed: "bad",
  raised: "bad",
  DEAD: "bad",
  ERROR: "bad",
  lost: "bad",
  RESTARTING: "warn",
  AWAY: "warn",
  PENDING_CREATION: "warn",
  full: "warn",
  problem: "warn",
};
const pill = word =>
  h(
    "span",
    {
      class:
        "pill " + (own(PILLS, word) || (/died|exit code [^0]|signal|SIG|limit|skipped|fail/i.test(word) ? "bad" : "hollow")),
    },
    /^[A-Z_]+$/.test(word) ? word.toLowerCase().replaceAll("_", " ") : String(word),
  );
const name = v => h(v.length > 40 ? "span.mono.long" : "span.mono.nb", {}, v);
function cell(c, v) {
  if (v == null || v === "") return "–";
  if (forms[c.form]) return typeof v === "number" ? forms[c.form](v) : String(v);
  if (c.form === "fn") return h("span.fn", {}, sw(v), name(v));
  if (c.form === "mono") return name(String(v));
  if (c.form === "pill") return pill(v);
  if (c.form === "value")
    return typeof v === "number" ? n3(v) : name(typeof v === "string" ? v : JSON.stringify(v));
  if (c.form === "meter")
    return h(
      ".prog",
      {},
      meter([...v.slice(0, 4), v[6]], v[4] ? colour(v[4]) : undefined),
      h("span", {}, v[3] ? Math.floor(((v[0] + v[1] + (v[6] || 0)) / v[3]) * 100) + " %" : "", v[5] ? " ends " + v[5] : ""),
    );
  if (c.form === "share")
    return h(
      ".prog",
      {},
      h("span.meter", {}, h("i", { style: `width:${v[1] ? Math.min(100, (v[0] / v[1]) * 100) : 0}%` })),
      h("span", { style: "width:auto" }, v[2]),
    );
  if (c.form === "trend")
    return h(
      "span.nb",
      {},
      h("span.curve", { "aria-hidden": "true" }, spark(v[3], "var(--accent)", v[1])),
      h("span.amount", {}, v[2]),
    );
  if (c.form === "curve") return h("span", {}, v.length > 1 ? h("span.curve", {}, spark(v, "var(--accent)")) : "–");
  return String(v);
}
const rank = (c, v) =>
  Array.isArray(v)
    ? c.form === "curve"
      ? v.length
      : (v[0] + (c.form === "meter" ? v[1] + (v[6] || 0) : 0)) / (v[c.form === "meter" ? 3 : 1] || 1)
    : v;
const compare = (x, y) => {
  const none = v => v == null || v === "";
  if (none(x) || none(y)) return none(x) - none(y);
  return typeof x === "number" && typeof y === "number"
    ? x - y
    : String(x).localeCompare(String(y), undefined, { numeric: true });
};
