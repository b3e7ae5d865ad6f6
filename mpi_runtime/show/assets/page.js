"use strict";
// A page is a document of blocks, which show/page.py describes. This file draws them, and only knows how they look.
const $ = s => document.querySelector(s), NS = "http://www.w3.org/2000/svg";
function h(tag, at = {}, ...kids) { const [t, ...c] = tag.split("."); return fill(document.createElement(t || "div"), c.length ? { class: c.join(" "), ...at } : at, kids); }
function s(tag, at = {}, ...kids) { return fill(document.createElementNS(NS, tag), at, kids); }
function fill(e, at, kids) {
  for (const k in at) if (k.startsWith("on")) e.addEventListener(k.slice(2), at[k]); else if (at[k] != null && at[k] !== false) e.setAttribute(k, at[k]);
  e.append(...kids.flat(9).filter(k => k != null && k !== false)); return e;
}

// ---- Numbers: three significant digits, thin gaps, a space before the unit ----
const group = n => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
function n3(x) { const a = Math.abs(x); if (!a) return "0"; if (a >= 1e6) return x.toExponential(2).replace("e+", "e"); if (a >= 1000) return group(Number(x.toPrecision(3))); if (a < .001) return x.toExponential(2).replace("-", "−").replace("e+", "e"); return String(Number(x.toPrecision(3))); }
function time(t) { const a = Math.abs(t); if (!a) return "0 s"; if (a < 1e-3) return n3(t * 1e6) + " µs"; if (a < .9995) return n3(t * 1e3) + " ms"; if (a < 99.95) return n3(t) + " s"; if (a < 3600) return Math.floor(t / 60) + " min " + pad(t % 60) + " s"; return group(Math.floor(t / 3600)) + " h " + pad(t % 3600 / 60) + " min"; }
const pad = x => String(Math.floor(x)).padStart(2, "0");
function size(b) { const u = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]; let i = 0; while (Math.abs(b) >= 1000 && i < 5) b /= 1024, i++; return n3(b) + " " + u[i]; }
function clock(t) { const d = new Date(t * 1000); return pad(d.getHours()) + ":" + pad(d.getMinutes()) + ":" + pad(d.getSeconds()); }
const value = v => typeof v === "number" ? n3(v) : String(v);
const forms = { count: group, num: n3, time, bytes: size, clock, percent: v => Math.round(v * 100) + " %" };

// ---- Axes: ticks at 1, 2, 5 times powers of ten; at clock steps; on log axes at powers of ten ----
function ticks(lo, hi, n = 5) { if (!(hi > lo)) return [lo]; const raw = (hi - lo) / n, p = 10 ** Math.floor(Math.log10(raw)), st = p * [1, 2, 5, 10].find(m => m * p >= raw * .999), out = []; for (let v = Math.ceil(lo / st - 1e-9) * st; v <= hi + st * 1e-6; v += st) out.push(Number(v.toPrecision(12))); return out; }
function logTicks(lo, hi) { const out = [], few = Math.log10(hi / lo) < 2.7; for (let e = Math.floor(Math.log10(lo)); e <= Math.log10(hi) + 1; e++) for (const m of few ? [1, 2, 5] : [1]) { const v = Number((m * 10 ** e).toPrecision(3)); if (v >= lo * .999 && v <= hi * 1.001) out.push(v); } return out.length > 1 ? out : ticks(lo, hi, 3); }
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
const stepOf = (span, n) => STEPS.find(x => span / x <= n) || 604800;
function timeTicks(span, n) { if (span < n) return ticks(0, span, n); const st = stepOf(span, n), out = []; for (let v = 0; v <= span; v += st) out.push(v); return out; }
// Ticks at full minutes and hours of the clock, as seconds after `from`, each with its text.
function clockTicks(from, span, n) { const st = stepOf(span, n), zone = new Date(from * 1000).getTimezoneOffset() * 60, out = []; for (let v = Math.ceil((from - zone) / st) * st + zone; v <= from + span; v += st) out.push([v - from, st < 60 ? clock(v) : clock(v).slice(0, 5)]); return out; }
const axisTicks = (b, span, n) => b.clock ? clockTicks(b.from, span, n) : timeTicks(span, n).map(t => [t, tickTime(t)]);
const tickText = v => v && (Math.abs(v) < .001 || Math.abs(v) >= 1e5) ? v.toExponential(0).replace("e+", "e").replace("-", "−") : String(v);
const tickTime = t => !t ? "0" : t < 1 ? n3(t * 1000) + " ms" : t < 120 ? n3(t) + " s" : t < 7200 ? n3(t / 60) + " min" : n3(t / 3600) + " h";
function scale(lo, hi, a, b, log) { const f = log ? Math.log : x => x, l = f(lo), w = f(hi) - l || 1; return v => a + (f(v) - l) / w * (b - a); }

// ---- Parts ----
let colours = {};
const colour = name => name in colours ? `var(--f${colours[name]})` : "var(--other)";
const sw = name => h("i.sw", { style: "--c:" + colour(name), "aria-hidden": "true" });
function spark(v, c = "var(--accent)", max) { if (v.length < 2) v = [...v, ...v, 0, 0].slice(0, 2); max = max || Math.max(...v) * 1.15 || 1; const W = 120, H = 28, x = i => i / (v.length - 1) * W, y = a => H - 1.5 - Math.min(1, a / max) * (H - 3), d = v.map((a, i) => (i ? "L" : "M") + x(i).toFixed(1) + " " + y(a).toFixed(1)).join(""); return s("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", "aria-hidden": "true" }, s("path", { d: d + `L${W} ${H}L0 ${H}Z`, fill: c, opacity: .1 }), s("path", { d, fill: "none", stroke: c, "stroke-width": 1.5, "vector-effect": "non-scaling-stroke", "stroke-linejoin": "round" })); }
const tip = h(".tip", { role: "tooltip" }); document.body.append(tip);
document.addEventListener("pointermove", e => { const t = e.target.closest?.("[data-tip]"); tip.style.display = t ? "block" : "none"; if (!t) return; tip.textContent = t.dataset.tip; tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px"; tip.style.top = Math.min(e.clientY + 16, innerHeight - tip.offsetHeight - 8) + "px"; });
const svg = (w, H, label) => s("svg", { class: "chart", width: w, height: H, viewBox: `0 0 ${w} ${H}`, role: "img", "aria-label": label });
const line = (x1, y1, x2, y2, c = "g") => s("line", { x1, y1, x2, y2, class: c });
const text = (x, y, t, at = {}) => s("text", { x, y, ...at }, t);
// A chart is drawn for the width it has, so letters keep their size.
function chart(draw) { const box = h("div"); let was = 0; box.redraw = () => { if (was) box.replaceChildren(draw(was)); }; new ResizeObserver(() => { const w = Math.floor(box.clientWidth); if (w && w !== was) { was = w; box.redraw(); } }).observe(box); return box; }
const rows = list => h("ul.rows", {}, list.map(([a, b, f]) => h("li", {}, h("span", { title: a }, f != null && sw(f), a), h("span", {}, b))));
// A bar: [done, failed, running, of]; without a known total the last is null.
function meter([done, failed, running, of], c = "var(--accent)") { const all = of || done + failed + running || 1, p = v => `width:${Math.min(100, v / all * 100)}%`; return h("span.meter", { class: "meter" + (of ? "" : " unknown"), style: "--c:" + c, role: "img", "aria-label": of ? Math.floor((done + failed) / of * 100) + " % ended" : "total unknown" }, h("i", { style: p(done) }), failed ? h("i.fail", { style: p(failed) }) : "", running ? h("i.now", { style: p(running) + ";min-width:3px" }) : ""); }
function seg(names, first, pick, label) { const box = h(".seg", { role: "group", "aria-label": label }); names.forEach(n => box.append(h("button", { "aria-pressed": String(n === first), onclick() { [...box.children].forEach(b => b.setAttribute("aria-pressed", String(b === this))); pick(n); } }, n))); return box; }
const PILLS = { runs: "run", running: "run", ALIVE: "run", waits: "hollow", waiting: "hollow", done: "hollow", idle: "hollow", TERMINATED: "hollow", RUNNING: "run", failed: "bad", raised: "bad", DEAD: "bad", ERROR: "bad", lost: "bad", RESTARTING: "warn", PENDING_CREATION: "warn", full: "warn" };
const pill = word => h("span", { class: "pill " + (PILLS[word] || (/died|exit code [^0]|signal|SIG|limit|skipped|fail/i.test(word) ? "bad" : "hollow")) }, String(word).toLowerCase().replaceAll("_", " "));
function cell(c, v) {
  if (v == null || v === "") return "–";
  if (forms[c.form]) return typeof v === "number" ? forms[c.form](v) : String(v);
  if (c.form === "fn") return [sw(v), h("span.mono", {}, v)];
  if (c.form === "mono") return h("span.mono", {}, String(v));
  if (c.form === "pill") return pill(v);
  if (c.form === "value") return typeof v === "number" ? n3(v) : h("span.mono", {}, typeof v === "string" ? v : JSON.stringify(v));
  if (c.form === "meter") return h(".prog", {}, meter(v.slice(0, 4), v[4] ? colour(v[4]) : undefined), h("span", {}, v[3] ? Math.floor((v[0] + v[1]) / v[3] * 100) + " %" : "", v[5] ? " ends " + v[5] : ""));
  if (c.form === "share") return h(".prog", {}, h("span.meter", {}, h("i", { style: `width:${v[1] ? Math.min(100, v[0] / v[1] * 100) : 0}%` })), h("span", { style: "width:auto" }, v[2]));
  if (c.form === "curve") return h("span", {}, v.length > 1 ? h("span.curve", {}, spark(v, "var(--accent)")) : "–");
  return String(v);
}
const rank = (c, v) => Array.isArray(v) ? c.form === "curve" ? v.length : (v[0] + (c.form === "meter" ? v[1] : 0)) / (v[c.form === "meter" ? 3 : 1] || 1) : v;
const compare = (x, y) => { const none = v => v == null || v === ""; if (none(x) || none(y)) return none(x) - none(y); return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true }); };

// ---- Kinds of blocks: each returns an element with update(block) ----
const kinds = {};
const simple = draw => first => { const box = h("div"); box.update = b => box.replaceChildren(...[draw(b)].flat()); box.update(first); return box; };
const charted = draw => first => { let b = first; const box = chart(w => draw(b, w)), out = h(".panel.pad", {}, box); out.update = now => { b = now; box.redraw(); }; return out; };
kinds.cards = simple(b => h(".answers", { class: "answers" + (b.join ? " join" : "") }, b.cards.map(c => h(".answer", {}, h("h2", {}, c.q), h(".big", { class: "big" + (c.bad ? " bad" : "") }, c.big, h("small", {}, " " + (c.small || ""))), c.meter && h(".prog", { style: "margin:8px 0 2px" }, meter(c.meter), h("span", { style: "width:auto" }, c.said || "")), rows(c.rows || []), c.note && h("p.more", {}, c.link ? h("a", { href: c.link }, c.note) : c.note)))));
kinds.tiles = simple(b => h(".strip", { style: `--n:${b.tiles.length}` }, b.tiles.map(t => h(".tile", {}, h(".l", {}, t.label), h(".v", { class: "v" + (t.bad ? " bad" : "") }, t.value, h("small", {}, t.small ? " " + t.small : "")), spark(t.curve || [], t.bad ? "var(--bad)" : "var(--accent)", t.max)))));
kinds.warns = simple(b => b.rows.length ? h("ul.warns.panel", { "aria-label": "Warnings" }, b.rows.map(([t, what, effect]) => h("li", {}, h("span.dim.num", {}, t ? clock(t).slice(0, 5) : ""), h("span", {}, what), h("span.dim.num", {}, effect || "")))) : []);
kinds.note = simple(b => h("p.soft", {}, b.text));
kinds.pre = simple(b => h("pre", { tabindex: 0, style: "overflow:auto;max-height:340px" }, b.text));
kinds.kv = simple(b => h("dl.kv", {}, b.rows.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, String(v))])));
kinds.errors = simple(b => h("div", {}, b.errors.map(e => h(".err", {}, h("b", {}, e.text), h("p.soft", {}, e.where), e.trace && h("details", { open: b.open ? "" : null }, h("summary.soft", {}, e.called || "Traceback"), h("pre", { tabindex: 0 }, e.trace.split("\n").map((l, i, all) => h("div", { class: i === all.length - 1 && !e.called ? "bad" : /^ {2}File .*site-packages/.test(l) ? "lib" : null }, l || "\u200b"))))))));
kinds.bars = simple(b => h(".half", { class: b.halves.length > 1 ? "half" : "" }, b.halves.map(half => h(".panel.pad", {}, h("h3", {}, half.title), half.rows.length ? h(".hbar", {}, half.rows.flatMap(([name, v, f]) => [h("span.nb", {}, f != null && sw(f), h("span.mono", {}, name)), h("i", { style: `width:${v / (half.max || Math.max(...half.rows.map(r => r[1])) || 1) * 100}%;${f != null ? "--c:" + colour(f) : ""}` }), h("span.soft", {}, forms[half.form](v))])) : h("p.soft", {}, half.empty || "none"), half.note && h("p.dim", { style: "margin-top:14px;font-size:12px" }, half.note)))));
kinds.half = first => { const out = h(".half"); const parts = first.blocks.map(b => make(b)); out.append(...parts.map((p, i) => h("div", {}, first.blocks[i].head && h("h3", {}, first.blocks[i].head), p))); out.update = b => b.blocks.forEach((one, i) => parts[i].update(one)); return out; };
kinds.blocks = first => { const out = h(".blocks"); out.update = b => out.replaceChildren(...b.blocks.map(make)); out.update(first); return out; };
function make(b) { const e = kinds[b.kind](b); e.dataset.kind = b.kind; return e; }

// Walltime: elapsed, the estimate and its range, the end of the job's time.
kinds.wall = first => { const out = charted((b, W) => { const H = 62, hi = Math.max(b.end || 0, b.high || b.estimate || 0, b.now) + (b.now - b.begin) * .02, x = scale(b.begin, hi, 0, W - 1), g = svg(W, H, "Time of the job"), y = 22;
  clockTicks(b.begin, hi - b.begin, W < 500 ? 4 : 10).forEach(([t, name]) => g.append(line(x(b.begin + t), 38, x(b.begin + t), 43, "ax"), text(x(b.begin + t), 57, name, { "text-anchor": x(b.begin + t) > W - 20 ? "end" : x(b.begin + t) < 20 ? "start" : "middle" })));
  g.append(s("rect", { x: 0, y, width: x(b.end || hi), height: 14, rx: 3, fill: "var(--sunken)" }), s("rect", { x: 0, y, width: x(b.now), height: 14, rx: 3, fill: "var(--accent)" }));
  if (b.estimate) { const late = b.end && b.estimate > b.end, c = late ? "var(--bad)" : "var(--accent)"; g.append(s("rect", { x: x(b.low), y: y + 3, width: Math.max(2, x(b.high) - x(b.low)), height: 8, fill: c, opacity: .3 }), line(x(b.estimate), y - 4, x(b.estimate), y + 18, ""), text(Math.min(x(b.estimate) + 5, W - 110), 12, "estimate " + clock(b.estimate).slice(0, 5), { class: late ? "k b" : "k" })); g.lastChild.previousSibling.setAttribute("style", `stroke:${c};stroke-width:2`); }
  if (b.end) { const m = s("line", { x1: x(b.end), x2: x(b.end), y1: 8, y2: 44, stroke: "var(--bad)", "stroke-width": 2 }); g.append(m, text(Math.max(130, x(b.end) - 6), 12, "the job's time ends " + clock(b.end).slice(0, 5), { class: "k b", "text-anchor": "end" })); }
  return g; })(first); out.className = "wall"; return out; };

// A table: columns [{t, form, w, help}], rows of values with an id first. What is read keeps its place when it is updated.
kinds.table = first => {
  let b = first, key = b.sort, down = !!b.down, limit = b.limit || 25, order = [], shown = [];
  const words = h("input.field", { type: "search", placeholder: (b.search || "") + "   /", "aria-label": "Search " + (b.noun || b.title), style: "width:260px", oninput: () => draw(true) }), said = h("span.soft.num", { role: "status" }), opened = new Map();
  const head = h("tr", { role: "row" }), body = h("tbody", { role: "rowgroup" }), more = h("button.btn", { onclick() { limit = limit === 1e9 ? b.limit || 25 : 1e9; draw(true); } }), foot = h(".foot", {}, more), numeric = c => c.form in forms || c.form === "value" && b.rows.some(r => typeof r[b.columns.indexOf(c) + 1] === "number");
  const table = h("table.cards", { role: "table", "aria-label": b.title || b.noun }, h("thead", { role: "rowgroup" }, head), body), out = h("div", {}, b.rows.length || b.live ? h(".panel", {}, h(".scroll", {}, table), foot) : h(".panel", {}, h(".empty", {}, b.empty || "none")));
  function match(r) { const q = words.value.trim().toLowerCase(); if (!q) return b.pass ? b.pass(r) : true; if (b.pass && !b.pass(r)) return false; const m = q.match(/^(\S+?)\s*([<>=])\s*(-?[\d.e+-]+)$/), i = m ? b.columns.findIndex(c => c.t.toLowerCase() === m[1]) : -1; if (i >= 0) { const v = rank(b.columns[i], r[i + 1]); return typeof v === "number" && { "<": v < +m[3], ">": v > +m[3], "=": v === +m[3] }[m[2]]; } const t = r.map(v => Array.isArray(v) ? v[4] || "" : v).join(" ").toLowerCase(); return q.split(/\s+/).every(w => t.includes(w)); }
  const pick = r => rank(b.columns[key], r[key + 1]);
  async function open(r, box) { const blocks = b.details?.[r[0]] || (detail && await detail(b.id, r[0]).catch(e => [{ kind: "note", text: String(e) }])) || [{ kind: "note", text: "nothing more is known" }]; const state = JSON.stringify(blocks); if (box.state !== state) { const scrolls = [...box.querySelectorAll("pre")].map(p => p.scrollTop), opens = [...box.querySelectorAll("details")].map(d => d.open); box.state = state; box.replaceChildren(h(".blocks", {}, blocks.map(make))); box.querySelectorAll("pre").forEach((p, i) => p.scrollTop = scrolls[i] || 0); if (opens.length) box.querySelectorAll("details").forEach((d, i) => d.open = opens[i] ?? d.open); } }
  function toggle(r) { if (opened.has(r[0])) opened.delete(r[0]); else opened.set(r[0], h("div")); draw(false); body.querySelector(`[data-id="${CSS.escape(r[0])}"] .tog`)?.focus({ preventScroll: true }); }
  function draw(again) {
    const found = b.rows.filter(match), at = new Map(order.map((id, i) => [id, i]));
    if (again) found.sort((x, y) => { const p = pick(x), q = pick(y), none = (p == null || p === "") !== (q == null || q === ""); return compare(p, q) * (down && !none ? -1 : 1); });
    else found.sort((x, y) => (at.get(x[0]) ?? 1e9) - (at.get(y[0]) ?? 1e9));
    order = found.map(r => r[0]); shown = found.slice(0, limit);
    [...head.children].forEach((th, i) => th.setAttribute("aria-sort", i === key ? down ? "descending" : "ascending" : "none"));
    const focus = document.activeElement?.closest?.("tr")?.dataset.id, held = body.contains(document.activeElement) && focus;
    body.replaceChildren(...shown.flatMap(r => {
      const is = opened.get(r[0]), tr = h("tr", { role: "row", class: (b.open ? "row " : "") + (is ? "open" : ""), "data-id": r[0] });
      b.columns.forEach((c, i) => { let inner = cell(c, r[i + 1]); if (!i && b.open) inner = h("button.tog", { "aria-expanded": String(!!is) }, h("span", {}, inner)); tr.append(h("td", { role: "cell", class: [numeric(c) && "n", c.w && "wide", c.form === "text" && "text", c.clip && "clip", numeric(c) && r[i + 1] === 0 && "zero", c.bad && r[i + 1] > 0 && "bad"].filter(Boolean).join(" ") || null, "data-l": c.w && !c.l ? null : c.t, title: c.clip ? r[i + 1] : null }, inner)); });
      if (b.open) tr.addEventListener("click", e => { if (!e.target.closest("a") && !String(getSelection())) toggle(r); });
      if (!is) return [tr]; open(r, is);
      return [tr, h("tr.detail", { role: "row" }, h("td", { role: "cell", colspan: b.columns.length }, is))];
    }));
    if (held) body.querySelector(`[data-id="${CSS.escape(held)}"] .tog`)?.focus({ preventScroll: true });
    const whole = Math.max(b.count || 0, b.rows.length); said.textContent = found.length < b.rows.length ? `${group(found.length)} of ${group(whole)}` : b.said ?? group(whole);
    foot.hidden = found.length <= (b.limit || 25); more.textContent = limit === 1e9 ? "Show fewer" : `Show all ${group(found.length)}`;
  }
  b.columns.forEach((c, i) => head.append(h("th", { role: "columnheader", scope: "col", class: numeric(c) ? "n" : null, title: c.help || null }, h("button", { onclick() { down = key === i ? !down : numeric(c) || c.form === "meter"; key = i; draw(true); } }, c.t))));
  out.said = said; out.tools = b.search ? [words] : []; out.find = q => { words.value = q; draw(true); }; out.openRow = id => { if (!opened.has(id)) { const r = b.rows.find(r => r[0] === id); if (r) toggle(r); } }; out.redraw = () => draw(true); out.opens = () => [...opened.keys()];
  out.update = now => { const columns = JSON.stringify(b.columns), had = b.rows.length; now.pass = b.pass; b = now; if (JSON.stringify(now.columns) !== columns || !had && now.rows.length && !b.live) return false; draw(false); return true; };
  for (const id of b.opens || []) opened.set(id, h("div"));
  draw(true); return out;
};

// Curves of what was in use: areas from 0, a line for each thing.
kinds.areas = charted((b, W) => { const span = Math.max(b.to - b.from, 1e-3), L = W < 500 ? 64 : 92, RH = 66, H = b.series.length * RH + 20, x = scale(0, span, L, W - 6), g = svg(W, H, b.series.map(c => c.name).join(", ") + " in use over time");
  axisTicks(b, span, W < 500 ? 4 : 9).forEach(([t, name]) => g.append(line(x(t), 0, x(t), H - 20), text(x(t), H - 5, name, { "text-anchor": x(t) < L + 20 ? "start" : x(t) > W - 24 ? "end" : "middle" })));
  b.series.forEach((c, i) => { const top = i * RH + 8, y = scale(0, Math.max(c.of, ...c.values) || 1, top + RH - 18, top), n = c.values.length, d = c.values.map((v, k) => `L${x(span * k / n).toFixed(1)} ${y(v).toFixed(1)}H${x(span * (k + 1) / n).toFixed(1)}`).join(""); g.append(line(L, y(0), W - 6, y(0), "ax"), c.of ? line(L, y(c.of), W - 6, y(c.of)) : "", text(0, top + 20, c.name, { class: "k" }), c.said ? text(0, top + 35, c.said) : "", c.of ? text(L - 6, y(c.of) + 9, forms[c.form || "num"](c.of), { "text-anchor": "end" }) : "", text(L - 6, y(0), "0", { "text-anchor": "end" }), s("path", { d: `M${x(0)} ${y(0)}${d}V${y(0)}Z`, fill: "var(--accent)", opacity: .22 }), s("path", { d: "M" + d.slice(1), fill: "none", stroke: "var(--accent)", "stroke-width": 1.25 })); });
  return g; });

// Lanes: bars [from, to, function, ending, calls merged]; ending 0 done, 1 failed, 2 runs.
kinds.lanes = first => { let b = first, only = null; const legend = h(".legend", { role: "group", "aria-label": "Show one function" });
  const box = chart(W => { const small = W < 600, L = small ? 74 : 150, RH = 17, span = Math.max(b.to - b.from, 1e-3), H = 6 + b.lanes.length * RH + 22, x = scale(0, span, L, W - 2), g = svg(W, H, "Calls over time, one lane for each that ran at a time");
    axisTicks(b, span, small ? 4 : 9).forEach(([t, name]) => g.append(line(x(t), 6, x(t), H - 20), text(x(t), H - 5, name, { "text-anchor": x(t) < L + 20 ? "start" : x(t) > W - 24 ? "end" : "middle" })));
    b.lanes.forEach((l, i) => { const y = 6 + i * RH, first = !i || b.lanes[i - 1].node !== l.node; if (first) g.append(line(0, y - 1, W, y - 1, i ? "ax" : "g"), text(0, y + 12, l.node.length > 16 ? l.node.slice(0, 15) + "…" : l.node, { class: "k" })); if (!first || !small && l.label) g.append(text(small ? 0 : L - 10, y + 12, l.label, small ? {} : { "text-anchor": "end" }));
      l.bars.forEach(([f, t, k, end, n]) => { const name = b.names[k], w = Math.max(1, x(t) - x(f) - (x(t) - x(f) > 3 ? .6 : 0)), dim = only != null && only !== name; g.append(s("rect", { x: x(f).toFixed(1), y: y + 1, width: w.toFixed(1), height: RH - 4, rx: w > 6 ? 2 : 0, style: `fill:${end === 1 ? "var(--bad)" : colour(name)};opacity:${dim ? .1 : end === 2 ? .55 : 1}`, "data-tip": n > 1 ? `${group(n)} calls, the first ${name}\nin ${time(t - f)}` : `${name}${["", " failed", " runs"][end]}\n${time(t - f)}${b.clock ? ", from " + clock(b.from + f) : ", after " + time(f)}` })); if (end === 1 && w > 12) g.append(text(x(f) + 4, y + 12, "✕", { style: "fill:var(--surface);pointer-events:none" })); }); });
    return g; });
  const out = h(".panel.pad", {}, b.lanes.length ? box : h(".empty", {}, "No call has ended yet."));
  out.tools = [legend]; out.update = now => { const was = b.lanes.length; b = now; if (!was !== !b.lanes.length) return false; if (legend.dataset.names !== b.names.join()) { legend.dataset.names = b.names.join(); legend.replaceChildren(...b.names.slice(0, 12).map(f => h("button.btn.sm", { "aria-pressed": "false", onclick() { only = only === f ? null : f; [...legend.querySelectorAll("button")].forEach(e => e.setAttribute("aria-pressed", String(e === this && only === f))); box.redraw(); } }, sw(f), f)), h("span", {}, h("i.sw", { style: "--c:var(--bad)" }), "✕ failed")); } box.redraw(); return true; };
  out.update(b); return out; };

// A heat map of nodes: metrics [{name, unit, key}], nodes [{id, values{key: part of 1}, said, flag, down}].
kinds.heat = first => { let b = first, metric = b.metrics[0], chosen = b.nodes[0]?.id; const grid = h(".heat", { role: "group" }), side = h(".panel.pad"), pick = seg(b.metrics.map(m => m.name), metric.name, n => { metric = b.metrics.find(m => m.name === n); draw(); }, "Colour by");
  function show() { const n = b.nodes.find(n => n.id === chosen); if (!n) return; [...grid.children].forEach(c => c.setAttribute("aria-pressed", String(c.dataset.id === chosen))); side.replaceChildren(h(".sh", {}, h("h2.mono", {}, n.id), n.down ? h("span.pill.bad", {}, "Lost") : n.flag ? h("span.pill.warn", {}, "Look") : h("span.pill.run", {}, "Well"), h("span.dim", {}, n.said)), n.flag ? h("p.warn", { style: "margin:-6px 0 10px" }, n.flag) : "", h("dl.kv", {}, n.facts.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]))); }
  function draw() { const focus = grid.contains(document.activeElement) && document.activeElement.dataset.id; grid.setAttribute("aria-label", metric.name + " of each node; arrow keys move"); grid.replaceChildren(...b.nodes.map((n, i) => { const v = Math.round(100 * (n.values[metric.key] || 0)); return h("button.cell", { class: "cell" + (n.down ? " down" : v > 52 ? " hi" : ""), style: `--v:${n.down ? 0 : v}`, "data-id": n.id, tabindex: n.id === chosen ? 0 : -1, "aria-label": `${n.id}: ${metric.name} ${v} %${n.flag ? "; " + n.flag : ""}`, "data-tip": `${n.id}\n${metric.name} ${v} %${n.flag ? "\n! " + n.flag : ""}`, onclick() { chosen = n.id; show(); }, onfocus() { chosen = n.id; show(); }, onkeydown(e) { const cols = getComputedStyle(grid).gridTemplateColumns.split(" ").length, d = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: cols, ArrowUp: -cols }[e.key], next = grid.children[i + d]; if (d && next) { e.preventDefault(); this.tabIndex = -1; next.tabIndex = 0; next.focus(); } } }, String(i + 1), n.flag && h("span.f", { "aria-hidden": "true" }, n.down ? "✕" : "!")); })); if (focus) [...grid.children].find(c => c.dataset.id === focus)?.focus(); show(); }
  const out = h(".two", {}, h(".panel.pad.heatbox", {}, grid, h(".sh", { style: "margin:0" }, h("span.ramp", { class: "ramp r" }, "0 %", h("i"), "100 %"))), side); out.tools = [pick]; out.update = now => { b = now; draw(); return true; }; draw(); return out; };

// Output: lines [number, time, level, writer, text, function], the newest first.
kinds.log = first => { let b = first; const q = h("input.field", { type: "search", placeholder: "Search call, rank or text   /", "aria-label": "Search the output", oninput: () => draw(), style: "width:260px" }), level = h("select.field", { "aria-label": "Level", onchange: () => draw() }, ["all lines", "standard error and warnings", "warnings"].map((t, i) => h("option", { value: i }, t))), said = h("span.soft.num", { role: "status" }), log = h(".log", { tabindex: 0, role: "log", "aria-label": "Output, newest first" });
  const mark = t => { const w = q.value.toLowerCase(), i = w ? t.toLowerCase().indexOf(w) : -1; return i < 0 ? [t] : [t.slice(0, i), h("mark", {}, t.slice(i, i + w.length)), t.slice(i + w.length)]; };
  function draw() { const w = q.value.toLowerCase(), v = Number(level.value), list = b.rows.filter(r => (!w || (r[3] + " " + r[4]).toLowerCase().includes(w)) && (!v || r[2] >= (v === 1 ? 2 : 30))); said.textContent = w || v ? `${list.length} of the last ${b.rows.length} lines` : b.rows.length < b.count ? `the last ${b.rows.length} lines` : `${b.rows.length} line${b.rows.length === 1 ? "" : "s"}`; const down = log.scrollTop; log.replaceChildren(...list.map(r => h("div", {}, h("span", {}, clock(r[1])), h("span", { title: r[3] }, r[5] != null ? sw(r[5]) : h("i.sw"), mark(r[3])), h("span", {}, r[2] >= 40 ? "error" : r[2] >= 30 ? "warning" : r[2] >= 20 ? "log" : r[2] === 2 ? "stderr" : ""), h("span", { class: r[2] >= 40 ? "bad" : r[2] >= 30 ? "warn" : null }, mark(r[4]))))); if (!list.length) log.append(h(".empty", {}, b.rows.length ? "No line has these words." : b.empty || "No call has written anything.")); log.scrollTop = down; }
  const out = h(".panel", {}, log); out.said = said; out.tools = [q, level]; out.update = now => { b = now; draw(); return true; }; draw(); return out; };

// ---- Searches ----
const fit = b => { const pairs = b.filter(v => v != null && isFinite(v)); return [Math.min(...pairs), Math.max(...pairs)]; };
function frame(g, x, y, W, H, B, L, xt, yt, name, xf = tickText) { yt.forEach(v => g.append(line(L, y(v), W, y(v)), text(L - 6, y(v) + 4, tickText(v), { "text-anchor": "end" }))); xt.forEach(v => g.append(line(x(v), H - B, x(v), H - B + 4, "ax"), text(x(v), H - B + 17, xf(v), { "text-anchor": x(v) > W - 12 ? "end" : "middle" }))); g.append(line(L, H - B, W, H - B, "ax"), text(W, H - 2, name, { "text-anchor": "end" })); }
const cls = (b, t, base) => `${base}${t.top ? " top" : ""}${t.id === b.best ? " best" : ""}`, tipOf = t => `trial ${t.id}, ${t.status.toLowerCase()}\n${t.value == null ? "no number" : value(t.value)} after ${t.ys.length} report${t.ys.length === 1 ? "" : "s"}`;
// Values over time: each trial's end, and the best so far. Log axis if all are above 0 and span much.
kinds.progress = charted((b, W) => { const ts = b.trials.filter(t => t.value != null), H = 280, B = 36, L = 48, g = svg(W, H, `The best ${b.metric} over time`), [lo, hi] = fit(ts.map(t => t.value)), log = lo > 0 && hi / lo > 20, pad = log ? 1 : (hi - lo) * .05 || 1, end = Math.max(...ts.map(t => t.end), 1e-3), x = scale(0, end, L + 6, W - 8), y = log ? scale(lo * .9, hi * 1.1, H - B, 8, true) : scale(lo - pad, hi + pad, H - B, 8);
  frame(g, x, y, W, H, B, L, timeTicks(end, W < 500 ? 4 : 7), log ? logTicks(lo * .9, hi * 1.1) : ticks(lo - pad, hi + pad), "since the start", tickTime);
  ts.forEach(t => g.append(s("circle", { cx: x(t.end), cy: y(t.value), r: 3, class: cls(b, t, t.ys.length > 1 ? "pt solid" : "pt"), "data-id": t.id, "data-tip": tipOf(t) })));
  b.trials.filter(t => t.status === "ERROR").forEach(t => g.append(text(x(Math.min(end, t.end || 0)), H - B - 5, "✕", { class: "b", "text-anchor": "middle", "data-tip": `trial ${t.id} failed\n${t.error}` })));
  let d = "", best = null; [...ts].sort((p, q) => p.end - q.end).forEach(t => { if (best == null || (b.mode === "max" ? t.value > best : t.value < best)) { best = t.value; d += (d ? `H${x(t.end)}V` : `M${x(t.end)} `) + y(best); } });
  if (d) g.append(s("path", { d: d + `H${x(end)}`, class: "step" }), text(x(end), y(best) + (b.mode === "max" || y(best) + 22 > H - B ? -8 : 18), `${n3(best)}, trial ${b.best}`, { class: "k halo", "text-anchor": "end" })); return g; });
// Every trial by number of reports; one report is a ring, moved sideways so that rings do not hide each other.
kinds.reports = charted((b, W) => { const ts = b.trials.filter(t => t.ys.length), all = ts.flatMap(t => t.ys.map(p => p[1])), H = 280, B = 36, L = 48, g = svg(W, H, `${b.metric} after each report of each trial`), [lo, hi] = fit(all), log = lo > 0 && hi / lo > 20, most = Math.max(...ts.map(t => t.ys.at(-1)[0]), 1), far = most > 20, x = far ? scale(.8, most * 1.1, L + 6, W - 8, true) : scale(.5, most + .5, L + 6, W - 8), pad = log ? 1 : (hi - lo) * .05 || 1, y = log ? scale(lo * .9, hi * 1.1, H - B, 8, true) : scale(lo - pad, hi + pad, H - B, 8);
  const xt = b.rungs.length > 1 && b.rungs.length < 9 ? b.rungs : far ? logTicks(1, most) : ticks(1, most, 8).filter(Number.isInteger); frame(g, x, y, W, H, B, L, xt, log ? logTicks(lo * .9, hi * 1.1) : ticks(lo - pad, hi + pad), "reports");
  [...ts].sort((p, q) => !!p.top - !!q.top).forEach(t => { const at = { "data-id": t.id, "data-tip": tipOf(t) }; if (t.ys.length > 1) g.append(s("path", { d: t.ys.map(([k, v], i) => (i ? "L" : "M") + x(k).toFixed(1) + " " + y(v).toFixed(1)).join(""), class: cls(b, t, "ln"), ...at })); else g.append(s("circle", { cx: x(t.ys[0][0]) + (Number(t.id) * 37 % 15 - 7), cy: y(t.ys[0][1]), r: 2.75, class: cls(b, t, "pt"), ...at })); if (t.status === "ERROR") g.append(text(x(t.ys.at(-1)[0]), y(t.ys.at(-1)[1]) + 4, "✕", { class: "b", "text-anchor": "middle", "data-tip": `trial ${t.id} failed\n${t.error}` })); });
  return g; });
// Parallel coordinates: upright axes with values; on a phone, lying ones. Ranges are chosen by dragging along an axis.
kinds.parallel = first => { let b = first; const cut = {}, clear = h("button.btn", { hidden: "", onclick() { for (const k in cut) delete cut[k]; redraw(); } }, "Clear ranges");
  const inside = t => b.axes.every((a, i) => { const c = cut[i], v = a.words ? a.words.indexOf(String(t.at[i])) : t.at[i]; return !c || v >= c[0] && v <= c[1]; });
  const box = chart(w => { const small = w < 620, n = b.axes.length, H = small ? n * 70 : 340, g = svg(w, H, "One line for each trial through its parameters and its result. The table below holds the same numbers."), along = small ? [16, w - 18] : [H - 18, 48], across = scale(0, Math.max(1, n - 1), small ? 26 : 62, small ? H - 28 : w - 62);
    const ax = b.axes.map((a, i) => { const v = b.trials.map(t => t.at[i]).filter(v => typeof v === "number"), lo = a.words ? -.3 : Math.min(...v), hi = a.words ? a.words.length - .7 : Math.max(...v); return { ...a, c: across(i), lo, hi, f: scale(lo, hi === lo ? lo + 1 : hi, ...along, a.log), ticks: a.words ? a.words.map((_, k) => k).slice(0, 12) : hi === lo ? [lo] : a.values ? a.values : a.log ? logTicks(lo, hi) : ticks(lo, hi, small ? 4 : 6) }; });
    const xy = (a, i, t) => { const v = t.at[i], q = a.f(a.words ? a.words.indexOf(String(v)) : v) + (a.words || a.values ? Number(t.id) * 53 % 13 - 6 : 0); return small ? [q, a.c] : [a.c, q]; };
    [...b.trials].sort((p, q) => !!p.top - !!q.top).forEach(t => { const ps = ax.map((a, i) => xy(a, i, t)).filter(p => p.every(isFinite)), d = ps.map(([X, Y], i) => { if (!i) return `M${X} ${Y}`; const [x0, y0] = ps[i - 1], m = small ? (y0 + Y) / 2 : (x0 + X) / 2; return small ? `C${x0} ${m} ${X} ${m} ${X} ${Y}` : `C${m} ${y0} ${m} ${Y} ${X} ${Y}`; }).join(""); g.append(s("path", { d, class: inside(t) ? cls(b, t, "ln") : "ln out", "data-id": t.id, "data-tip": tipOf(t) })); });
    ax.forEach((a, i) => { const [p, q] = along, last = i === n - 1; g.append(small ? line(p, a.c, q, a.c, "ax") : line(a.c, p, a.c, q, "ax")); if (small) g.append(text(p, a.c - 9, a.name + (a.log ? ", log" : ""), { class: "nm halo" })); else g.append(text(a.c, 12, a.name.length > 18 ? a.name.slice(0, 17) + "…" : a.name, { class: "nm", "text-anchor": "middle" }), text(a.c, 27, [a.log ? "log" : "", last ? b.mode === "max" ? "high is good" : b.mode === "min" ? "low is good" : "" : ""].filter(Boolean).join(", "), { "text-anchor": "middle" }));
      a.ticks.forEach(v => { const z = a.f(v), t = a.words ? a.words[v] : tickText(v); g.append(small ? line(z, a.c - 3, z, a.c + 3, "ax") : line(a.c - 4, z, a.c + 4, z, "ax"), small ? text(z, a.c + 14, t, { class: "halo", "text-anchor": "middle" }) : text(last ? a.c + 9 : a.c - 8, z + 4, t.length > 10 ? t.slice(0, 9) + "…" : t, { class: "halo", "text-anchor": last ? "start" : "end" })); });
      if (small) return; const c = cut[i], br = s("rect", { class: "brush", x: a.c - 8, width: 16, y: c ? a.f(c[1]) : 0, height: c ? Math.abs(a.f(c[0]) - a.f(c[1])) : 0 }); g.append(br); let from = null; const inv = z => { const r = (z - p) / (q - p); return a.log ? Math.exp(Math.log(a.lo) + r * Math.log(a.hi / a.lo)) : a.lo + r * (a.hi - a.lo); };
      g.append(s("rect", { class: "hit", x: a.c - 14, y: q - 6, width: 28, height: p - q + 12, onpointerdown(e) { from = e.offsetY; this.setPointerCapture(e.pointerId); }, onpointermove(e) { if (from == null) return; br.setAttribute("y", Math.min(from, e.offsetY)); br.setAttribute("height", Math.abs(e.offsetY - from)); }, onpointerup(e) { if (Math.abs(e.offsetY - from) > 4) cut[i] = [inv(Math.max(from, e.offsetY)), inv(Math.min(from, e.offsetY))]; else delete cut[i]; from = null; redraw(); } })); });
    return g; });
  function redraw() { clear.hidden = !Object.keys(cut).length; box.redraw(); const t = held.get("trials"); if (t) { const ids = new Set(b.trials.filter(inside).map(t => t.id)); t.block.pass = Object.keys(cut).length ? r => ids.has(r[0]) : null; t.inner.redraw(); } }
  const out = h(".panel.pad", {}, box); out.tools = [clear]; out.update = now => { b = now; box.redraw(); return true; }; return out; };

// ---- The page ----
const held = new Map(); let detail = null;
function place(b) {
  const was = held.get(b.id), state = JSON.stringify(b); if (was && was.state === state && !was.inner.querySelector?.("tr.open")) return;
  if (was) { was.state = state; b.pass = was.block.pass; was.block = b; if (was.inner.update(b) !== false) { if (was.said && b.said != null && !was.inner.said) was.said.textContent = b.said; return; } if (was.inner.opens) b.opens = was.inner.opens(); }
  const inner = make(b), said = inner.said || h("span.soft.num", {}, b.said || ""), tools = inner.tools || [], e = b.title ? h("section", { id: b.id, "aria-label": b.title }, h(".sh", {}, h("h2", {}, b.title), said, tools.length ? h(".r", {}, tools) : ""), inner) : fill(inner, { id: b.id }, []);
  if (was) was.e.replaceWith(e); else $("main").append(e); held.set(b.id, { e, inner, block: b, state, said });
}
function render(doc) {
  colours = doc.colours || {}; document.title = doc.name + (doc.pill ? ": " + doc.pill[1].toLowerCase() : ""); $("#name").textContent = doc.name; $("#meta").replaceChildren(...doc.meta.map(m => h("span", {}, m)));
  if (doc.pill) { $("#pill").hidden = false; $("#pill").className = "pill " + doc.pill[0]; $("#pill").textContent = doc.pill[1]; }
  banner(doc.banner); for (const id of [...held.keys()]) if (!doc.blocks.some(b => b.id === id)) { held.get(id).e.remove(); held.delete(id); }
  doc.blocks.forEach(place); doc.blocks.forEach((b, i) => { const e = held.get(b.id).e, at = $("main").children[i + 2]; if (at !== e) $("main").insertBefore(e, at || null); });
  const nav = doc.blocks.filter(b => b.title), names = nav.map(b => b.title).join(); if ($("nav").dataset.names !== names) { $("nav").dataset.names = names; $("nav").replaceChildren(...nav.map(b => h("a", { href: "#" + b.id }, b.title))); }
  document.body.dataset.ready = "yes";
}
function banner(b) { const state = JSON.stringify(b || null); if ($("#banner").dataset.state === state) return; $("#banner").dataset.state = state; $("#banner").replaceChildren(b ? h(".banner", { class: "banner " + b[0], role: "alert" }, b[1]) : ""); }
addEventListener("keydown", e => { if (e.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(e.target.tagName)) { e.preventDefault(); $("main input[type=search]")?.focus(); } });
// One trial under the pointer, or with the focus, is marked in every chart and in the table.
let hotId = null; function hot(id) { if (id === hotId) return; hotId = id; document.querySelectorAll(".hot").forEach(e => e.classList.remove("hot")); if (id) document.querySelectorAll(`[data-id="${CSS.escape(id)}"]`).forEach(e => { if (e.matches(".ln, .pt, tr")) e.classList.add("hot"); }); }
for (const k of ["pointerover", "focusin"]) $("main").addEventListener(k, e => { if (held.has("parallel")) hot(e.target.closest?.("[data-id]")?.dataset.id); });
const asked = new URLSearchParams(location.search);
function theme(t) { if (t === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = t; const b = $("#theme"); b.textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[t]; b.dataset.t = t; b.setAttribute("aria-label", "Colours: " + t + ". Change"); try { localStorage.theme = t; } catch { } }
let kept = "auto"; try { kept = localStorage.theme || kept; } catch { } theme(["auto", "light", "dark"].includes(asked.get("theme")) ? asked.get("theme") : kept);
$("#theme").onclick = e => { const o = ["auto", "light", "dark"]; theme(o[(o.indexOf(e.currentTarget.dataset.t) + 1) % 3]); };
if ($("#data")) render(JSON.parse($("#data").textContent));
