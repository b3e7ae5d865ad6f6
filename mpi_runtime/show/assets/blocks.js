"use strict";
// ---- Kinds of blocks: each returns an element with update(block) ----
const kinds = {};
const simple = draw => first => {
  const box = h("div"),
    stops = () => [...box.querySelectorAll("a, summary, pre")];
  box.update = b => {
    const at = stops().indexOf(document.activeElement);
    box.replaceChildren(...[draw(b)].flat());
    if (at >= 0) stops()[at]?.focus({ preventScroll: true });
  };
  box.update(first);
  return box;
};
const charted = draw => first => {
  let b = first;
  const box = chart(w => draw(b, w)),
    out = h(".panel.pad", {}, box);
  out.update = now => {
    b = now;
    box.redraw();
  };
  return out;
};
kinds.cards = simple(b =>
  h(
    ".answers",
    { class: "answers" + (b.join ? " join" : "") },
    b.cards.map(c =>
      h(
        ".answer",
        {},
        h("h2", {}, c.q),
        h(".big", { class: "big" + (c.bad ? " bad" : "") }, c.big, h("small", {}, " " + (c.small || ""))),
        c.meter &&
          h(".prog", { style: "margin:8px 0 2px" }, meter(c.meter), h("span", { style: "width:auto" }, c.said || "")),
        rows(c.rows || [], c.finds),
        c.note &&
          h(
            "p.more",
            {},
            c.link ? h("a", { href: c.link, onclick: () => c.find && seek(c.link.slice(1), c.find) }, c.note) : c.note,
          ),
      ),
    ),
  ),
);
kinds.tiles = simple(b =>
  h(
    ".strip",
    { style: `--n:${b.tiles.length}` },
    b.tiles.map(t =>
      h(
        ".tile",
        {},
        h(".l", {}, t.label),
        h(".v", { class: "v" + (t.bad ? " bad" : "") }, t.value, h("small", {}, t.small ? " " + t.small : "")),
        spark(t.curve || [], t.bad ? "var(--bad)" : "var(--accent)", t.max),
      ),
    ),
  ),
);
kinds.warns = simple(b =>
  b.rows.length
    ? h(
        "ul.warns.panel",
        { "aria-label": "Warnings" },
        b.rows.map(([t, what, effect]) =>
          h(
            "li",
            {},
            h("span.dim.num", { title: t ? moment(t) : null }, t ? clock(t).slice(0, 5) : ""),
            h("span", {}, what),
            h("span.dim.num", {}, effect || ""),
          ),
        ),
      )
    : [],
);
kinds.note = simple(b => h("p.soft", {}, b.text));
kinds.picture = simple(b =>
  h("figure", {}, h("img", { src: b.src, alt: b.text, style: "max-width:100%" }), h("figcaption.soft", {}, b.text)),
);
kinds.pre = simple(b => h("pre", { tabindex: 0, style: "overflow:auto;max-height:340px" }, b.text));
kinds.kv = simple(b =>
  h(
    "dl.kv",
    {},
    b.rows.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, String(v))]),
  ),
);
kinds.errors = simple(b =>
  h(
    "div",
    {},
    b.errors.map(e =>
      h(
        ".err",
        {},
        h("b", {}, e.text),
        h("p.soft", {}, e.where),
        e.trace &&
          h(
            "details",
            { open: b.open ? "" : null },
            h("summary.soft", {}, e.called || "Traceback"),
            h(
              "pre",
              { tabindex: 0 },
              e.trace
                .split("\n")
                .map((l, i, all) =>
                  h(
                    "div",
                    {
                      class:
                        i === all.length - 1 && !e.called ? "bad" : /^ {2}File .*site-packages/.test(l) ? "lib" : null,
                    },
                    l || "\u200b",
                  ),
                ),
            ),
          ),
      ),
    ),
  ),
);
kinds.bars = simple(b =>
  h(
    ".half",
    { class: b.halves.length > 1 ? "half" : "" },
    b.halves.map(half =>
      h(
        ".panel.pad",
        {},
        h("h3", {}, half.title),
        half.rows.length
          ? h(
              ".hbar",
              {},
              half.rows.flatMap(([name, v, f]) => [
                h("span.nb", { title: name }, f != null && sw(f), h("span.mono", {}, name)),
                h("i", {
                  style: `width:${(v / (half.max || Math.max(...half.rows.map(r => r[1])) || 1)) * 100}%;${f != null ? "--c:" + colour(f) : ""}`,
                }),
                h("span.soft", {}, forms[half.form](v)),
              ]),
            )
          : h("p.soft", {}, half.empty || "none"),
        half.note && h("p.dim", { style: "margin-top:14px;font-size:12px" }, half.note),
      ),
    ),
  ),
);
kinds.half = first => {
  const out = h(".half");
  const parts = first.blocks.map(b => make(b));
  out.append(...parts.map((p, i) => h("div", {}, first.blocks[i].head && h("h3", {}, first.blocks[i].head), p)));
  out.update = b => b.blocks.forEach((one, i) => parts[i].update(one));
  return out;
};
kinds.blocks = first => {
  const out = h(".blocks");
  out.update = b => out.replaceChildren(...b.blocks.map(make));
  out.update(first);
  return out;
};
function make(b) {
  const e = kinds[b.kind](b);
  e.dataset.kind = b.kind;
  return e;
}

// Walltime: elapsed, the estimate and its range, the end of the job's time.
kinds.wall = first => {
  const out = charted((b, W) => {
    const H = 62,
      hi = Math.max(b.end || 0, b.high || b.estimate || 0, b.now) + (b.now - b.begin) * 0.02,
      x = scale(b.begin, hi, 0, W - 1),
      g = svg(W, H, "Time of the job"),
      y = 22;
    clockTicks(b.begin, hi - b.begin, W < 500 ? 4 : 10).forEach(([t, name]) =>
      g.append(
        line(x(b.begin + t), 38, x(b.begin + t), 43, "ax"),
        text(x(b.begin + t), 57, name, {
          "text-anchor": x(b.begin + t) > W - 20 ? "end" : x(b.begin + t) < 20 ? "start" : "middle",
        }),
      ),
    );
    g.append(
      s("rect", { x: 0, y, width: x(b.end || hi), height: 14, rx: 3, fill: "var(--sunken)" }),
      s("rect", { x: 0, y, width: x(b.now), height: 14, rx: 3, fill: "var(--accent)" }),
    );
    if (b.estimate) {
      const late = b.end && b.estimate > b.end,
        c = late ? "var(--bad)" : "var(--accent)";
      g.append(
        s("rect", {
          x: x(b.low),
          y: y + 3,
          width: Math.max(2, x(b.high) - x(b.low)),
          height: 8,
          fill: c,
          opacity: 0.3,
        }),
        s("line", { x1: x(b.estimate), x2: x(b.estimate), y1: y - 4, y2: y + 18, stroke: c, "stroke-width": 2 }),
      );
      if (W > 500)
        // the card above has it, and on a phone there is no room for both
        g.append(
          text(Math.min(x(b.estimate) + 5, W - 110), 12, "estimate " + clock(b.estimate).slice(0, 5), {
            class: late ? "k b" : "k",
          }),
        );
    }
    if (b.end) {
      const m = s("line", { x1: x(b.end), x2: x(b.end), y1: 8, y2: 44, stroke: "var(--bad)", "stroke-width": 2 });
      g.append(
        m,
        text(Math.max(W < 500 ? 100 : 170, x(b.end) - 6), 12, `${W < 500 ? "time" : "the job's time"} ends ${clock(b.end).slice(0, 5)}`, {
          class: "k b",
          "text-anchor": "end",
        }),
      );
    }
    return g;
  })(first);
  out.className = "wall";
  return out;
};

// A table: columns [{t, form, w, help}], rows of values with an id first. What is read keeps its place when it is updated.
kinds.table = first => {
  let b = first,
    key = b.sort,
    down = !!b.down,
    limit = b.limit || 25,
    order = [],
    shown = [];
  const words = h("input.field", {
      type: "search",
      placeholder: (b.search || "") + "   /",
      "aria-label": "Search " + (b.noun || b.title),
      style: "width:260px",
      oninput: () => draw(true),
    }),
    said = h("span.soft.num", { role: "status" }),
    opened = new Map();
  const head = h("tr", { role: "row" }),
    body = h("tbody", { role: "rowgroup" }),
    more = h("button.btn", {
      onclick() {
        limit = limit === 1e9 ? b.limit || 25 : 1e9;
        draw(true);
      },
    }),
    foot = h(".foot", {}, more),
    numeric = c =>
      c.form in forms || (c.form === "value" && b.rows.some(r => typeof r[b.columns.indexOf(c) + 1] === "number"));
  const table = h(
      "table.cards",
      { role: "table", "aria-label": b.title || b.noun },
      h("thead", { role: "rowgroup" }, head),
      body,
    ),
    out = h(
      "div",
      {},
      b.rows.length || b.live
        ? h(".panel", {}, h(".scroll", {}, table), foot)
        : h(".panel", {}, h(".empty", {}, b.empty || "none")),
    );
  function match(r, words) {
    const q = words.trim().toLowerCase();
    if (!q) return b.pass ? b.pass(r) : true;
    if (b.pass && !b.pass(r)) return false;
    const m = q.match(/^(\S+?)\s*([<>=])\s*(-?[\d.e+-]+)$/),
      i = m ? b.columns.findIndex(c => c.t.toLowerCase() === m[1]) : -1;
    if (i >= 0) {
      const v = rank(b.columns[i], r[i + 1]);
      return typeof v === "number" && { "<": v < +m[3], ">": v > +m[3], "=": v === +m[3] }[m[2]];
    }
    const t = r
      .map(v => (Array.isArray(v) ? v[4] || "" : v))
      .join(" ")
      .toLowerCase();
    return q.split(/\s+/).every(w => t.includes(w));
  }
  const pick = r => rank(b.columns[key], r[key + 1]);
  async function open(r, box) {
    const blocks = own(b.details, r[0]) ||
      (detail && (await detail(b.id, r[0]).catch(e => [{ kind: "note", text: String(e) }]))) || [
        { kind: "note", text: "nothing more is known" },
      ];
    const state = JSON.stringify(blocks);
    if (box.state !== state) {
      const scrolls = [...box.querySelectorAll("pre")].map(p => p.scrollTop),
        opens = [...box.querySelectorAll("details")].map(d => d.open);
      box.state = state;
      refill(box, blocks);
      box.querySelectorAll("pre").forEach((p, i) => (p.scrollTop = scrolls[i] || 0));
      if (opens.length) box.querySelectorAll("details").forEach((d, i) => (d.open = opens[i] ?? d.open));
    }
  }
  // What has not changed stays as it is: somebody may read a stack there, or have the focus in it.
  function refill(box, blocks) {
    const was = box.parts || [];
    box.parts = blocks.map(b => {
      const at = was.findIndex(p => p.dataset.kind === b.kind),
        old = at < 0 ? null : was.splice(at, 1)[0];
      return old?.update && old.update(b) !== false ? old : make(b);
    });
    if (!box.firstChild) box.append(h(".blocks"));
    const inner = box.firstChild;
    if (box.parts.length !== inner.children.length || box.parts.some((p, i) => p !== inner.children[i]))
      inner.replaceChildren(...box.parts);
  }
  body.addEventListener("keydown", e => {
    const at = e.target.closest("tr.open, tr.detail"),
      row = at?.matches(".detail") ? at.previousElementSibling : at,
      r = e.key === "Escape" && row && b.rows.find(r => r[0] === row.dataset.id);
    if (r) toggle(r);
  });
  function toggle(r) {
    if (opened.has(r[0])) opened.delete(r[0]);
    else opened.set(r[0], h("div"));
    draw(false);
    body.querySelector(`[data-id="${CSS.escape(r[0])}"] .tog`)?.focus({ preventScroll: true });
  }
  function draw(again) {
    const found = b.rows.filter(r => match(r, words.value)),
      at = new Map(order.map((id, i) => [id, i]));
    if (again)
      found.sort((x, y) => {
        const p = pick(x),
          q = pick(y),
          none = (p == null || p === "") !== (q == null || q === "");
        return compare(p, q) * (down && !none ? -1 : 1);
      });
    else found.sort((x, y) => (at.get(x[0]) ?? 1e9) - (at.get(y[0]) ?? 1e9));
    order = found.map(r => r[0]);
    shown = found.slice(0, limit);
    [...head.children].forEach((th, i) =>
      th.setAttribute("aria-sort", i === key ? (down ? "descending" : "ascending") : "none"),
    );
    const active = document.activeElement,
      inside = body.contains(active),
      held = inside && active.closest("tr").dataset.id,
      scrolls = [...body.querySelectorAll("pre")].map(p => [p, p.scrollTop]);
    body.replaceChildren(
      ...shown.flatMap(r => {
        const is = opened.get(r[0]),
          tr = h("tr", { role: "row", class: (b.open ? "row " : "") + (is ? "open" : ""), "data-id": r[0] });
        b.columns.forEach((c, i) => {
          let inner = cell(c, r[i + 1]);
          if (!i && b.open) inner = h("button.tog", { "aria-expanded": String(!!is) }, h("span", {}, inner));
          tr.append(
            h(
              "td",
              {
                role: "cell",
                class:
                  [
                    numeric(c) && "n",
                    c.w && "wide",
                    c.form === "text" && (String(r[i + 1]).length > 12 ? "text" : "nb"),
                    c.clip && "clip",
                    numeric(c) && r[i + 1] === 0 && "zero",
                    c.bad && r[i + 1] > 0 && "bad",
                  ]
                    .filter(Boolean)
                    .join(" ") || null,
                "data-l": c.w && !c.l ? null : c.t,
                title: c.clip ? r[i + 1] : null,
              },
              inner,
            ),
          );
        });
        if (b.open)
          tr.addEventListener("click", e => {
            if (!e.target.closest("a") && !String(getSelection())) toggle(r);
          });
        if (!is) return [tr];
        open(r, is);
        return [tr, h("tr.detail", { role: "row" }, h("td", { role: "cell", colspan: b.columns.length }, is))];
      }),
    );
    if (!found.length)
      body.append(
        h(
          "tr.none",
          { role: "row" },
          h("td", { role: "cell", colspan: b.columns.length }, b.rows.length ? "No row has these words." : b.empty || "none"),
        ),
      );
    scrolls.forEach(([p, top]) => (p.scrollTop = top));
    if (held) body.querySelector(`[data-id="${CSS.escape(held)}"] .tog`)?.focus({ preventScroll: true });
    else if (inside && active.isConnected) active.focus({ preventScroll: true });
    const whole = Math.max(b.count || 0, b.rows.length);
    said.textContent =
      found.length < b.rows.length ? `${group(found.length)} of ${group(whole)}` : (b.said ?? group(whole));
    foot.hidden = found.length <= (b.limit || 25);
    more.textContent = limit === 1e9 ? "Show fewer" : `Show all ${group(found.length)}`;
  }
  b.columns.forEach((c, i) =>
    head.append(
      h(
        "th",
        { role: "columnheader", scope: "col", class: numeric(c) ? "n" : null, title: c.help || null },
        h(
          "button",
          {
            onclick() {
              down = key === i ? !down : numeric(c) || c.form === "meter";
              key = i;
              draw(true);
            },
          },
          c.t,
        ),
      ),
    ),
  );
  out.said = said;
  out.tools = b.search ? [words] : [];
  out.find = q => {
    words.value = q;
    draw(true);
  };
  // The first rows with these words, opened.
  out.show = q => {
    const found = b.rows.filter(r => match(r, q));
    if (!found.length) return;
    if (b.search) words.value = q;
    if (b.open) found.slice(0, 3).forEach(r => opened.has(r[0]) || opened.set(r[0], h("div")));
    draw(true);
  };
  out.openRow = id => {
    if (!opened.has(id)) {
      const r = b.rows.find(r => r[0] === id);
      if (r) toggle(r);
    }
  };
  out.redraw = () => draw(true);
  out.opens = () => [...opened.keys()];
  out.update = now => {
    const columns = JSON.stringify(b.columns),
      had = b.rows.length;
    now.pass = b.pass;
    b = now;
    if (JSON.stringify(now.columns) !== columns || (!had && now.rows.length && !b.live)) return false;
    draw(false);
    return true;
  };
  for (const id of b.opens || []) opened.set(id, h("div"));
  draw(true);
  return out;
};

// Curves of what was in use: areas from 0, a line for each thing.
kinds.areas = charted((b, W) => {
  const span = Math.max(b.to - b.from, 1e-3),
    small = W < 500,
    L = small ? 44 : b.series.some(c => c.said?.length > 8) ? 168 : 92,
    RH = small ? 84 : 66,
    above = small ? 20 : 0,
    H = b.series.length * RH + 20,
    x = scale(0, span, L, W - 6),
    g = svg(W, H, b.series.map(c => c.name).join(", ") + " in use over time");
  axisTicks(b, span, small ? 3 : 9).forEach(([t, name]) =>
    g.append(
      line(x(t), 0, x(t), H - 20),
      text(x(t), H - 5, name, { "text-anchor": x(t) < L + 20 ? "start" : x(t) > W - 24 ? "end" : "middle" }),
    ),
  );
  b.series.forEach((c, i) => {
    const top = i * RH + 8 + above,
      y = scale(0, Math.max(c.of, ...c.values) || 1, top + RH - 18 - above, top),
      n = c.values.length,
      d = c.values
        .map((v, k) => `L${x((span * k) / n).toFixed(1)} ${y(v).toFixed(1)}H${x((span * (k + 1)) / n).toFixed(1)}`)
        .join("");
    g.append(
      line(L, y(0), W - 6, y(0), "ax"),
      c.of ? line(L, y(c.of), W - 6, y(c.of)) : "",
      text(0, small ? top - 8 : top + 20, c.name, { class: "k halo" }),
      c.said ? text(small ? W - 6 : 0, small ? top - 8 : top + 35, c.said, small ? { "text-anchor": "end", class: "halo" } : {}) : "",
      c.of ? text(L - 6, y(c.of) + 9, forms[c.form || "num"](c.of), { "text-anchor": "end" }) : "",
      text(L - 6, y(0), "0", { "text-anchor": "end" }),
      s("path", { d: `M${x(0)} ${y(0)}${d}V${y(0)}Z`, fill: "var(--accent)", opacity: 0.22 }),
      s("path", { d: "M" + d.slice(1), fill: "none", stroke: "var(--accent)", "stroke-width": 1.25 }),
    );
  });
  return g;
});

// Lanes: bars [from, to, function, ending, calls merged]; ending 0 done, 1 failed, 2 runs.
kinds.lanes = first => {
  let b = first,
    only = null;
  const legend = h(".legend", { role: "group", "aria-label": "Show one function" });
  const box = chart(W => {
    const small = W < 600,
      L = small ? 74 : 150,
      RH = 17,
      span = Math.max(b.to - b.from, 1e-3),
      H = 6 + b.lanes.length * RH + 22,
      x = scale(0, span, L, W - 2),
      g = svg(W, H, "Calls over time, one lane for each that ran at a time");
    axisTicks(b, span, small ? 4 : 9).forEach(([t, name]) =>
      g.append(
        line(x(t), 6, x(t), H - 20),
        text(x(t), H - 5, name, { "text-anchor": x(t) < L + 20 ? "start" : x(t) > W - 24 ? "end" : "middle" }),
      ),
    );
    b.lanes.forEach((l, i) => {
      const y = 6 + i * RH,
        first = !i || b.lanes[i - 1].node !== l.node;
      if (first)
        g.append(
          line(0, y - 1, W, y - 1, i ? "ax" : "g"),
          text(0, y + 12, l.node.length > 16 ? l.node.slice(0, 15) + "…" : l.node, { class: "k" }),
        );
      if (!first || (!small && l.label))
        g.append(text(small ? 0 : L - 10, y + 12, l.label, small ? {} : { "text-anchor": "end" }));
      l.bars.forEach(([f, t, k, end, n]) => {
        const name = b.names[k],
          w = Math.max(1, x(t) - x(f) - (x(t) - x(f) > 3 ? 0.6 : 0)),
          dim = only != null && only !== name;
        g.append(
          s("rect", {
            x: x(f).toFixed(1),
            y: y + 1,
            width: w.toFixed(1),
            height: RH - 4,
            rx: w > 6 ? 2 : 0,
            style: `fill:${end === 1 ? "var(--bad)" : colour(name)};opacity:${dim ? 0.1 : end === 2 ? 0.55 : 1}`,
            "data-tip":
              n > 1
                ? `${group(n)} calls, the first ${name}\nin ${time(t - f)}`
                : `${name}${["", " failed", " runs"][end]}\n${time(t - f)}${b.clock ? ", from " + moment(b.from + f) : ", after " + time(f)}`,
          }),
        );
        if (end === 1 && w > 12)
          g.append(text(x(f) + 4, y + 12, "✕", { style: "fill:var(--surface);pointer-events:none" }));
      });
    });
    return g;
  });
  const out = h(".panel.pad", {}, b.lanes.length ? box : h(".empty", {}, "No call has ended yet."));
  out.tools = [legend];
  out.update = now => {
    const was = b.lanes.length;
    b = now;
    if (!was !== !b.lanes.length) return false;
    if (legend.dataset.names !== b.names.join()) {
      legend.dataset.names = b.names.join();
      legend.replaceChildren(
        ...b.names.slice(0, 12).map(f =>
          h(
            "button.btn.sm",
            {
              "aria-pressed": "false",
              title: f,
              onclick() {
                only = only === f ? null : f;
                [...legend.querySelectorAll("button")].forEach(e =>
                  e.setAttribute("aria-pressed", String(e === this && only === f)),
                );
                box.redraw();
              },
            },
            sw(f),
            f,
          ),
        ),
        h("span", {}, h("i.sw", { style: "--c:var(--bad)" }), "✕ failed"),
      );
    }
    box.redraw();
    return true;
  };
  out.update(b);
  return out;
};

// A heat map of nodes: metrics [{name, unit, key}], nodes [{id, values{key: part of 1}, said, flag, down}].
kinds.heat = first => {
  let b = first,
    metric = b.metrics[0],
    chosen = b.nodes[0]?.id;
  const grid = h(".heat", { role: "group" }),
    side = h(".panel.pad"),
    more = h(".blocks", { style: "margin-top:14px" }),
    pick = seg(
      b.metrics.map(m => m.name),
      metric.name,
      n => {
        metric = b.metrics.find(m => m.name === n);
        draw();
      },
      "Colour by",
    );
  function show() {
    const n = b.nodes.find(n => n.id === chosen);
    if (!n) return;
    [...grid.children].forEach(c => c.setAttribute("aria-pressed", String(c.dataset.id === chosen)));
    side.replaceChildren(
      h(
        ".sh",
        {},
        h("h2.mono", {}, n.id),
        n.down
          ? h("span.pill.bad", {}, "Lost")
          : n.flag
            ? h("span.pill.warn", {}, "Look")
            : h("span.pill.run", {}, "Well"),
        h("span.dim", {}, n.said),
      ),
      n.flag ? h("p.warn", { style: "margin:-6px 0 10px" }, n.flag) : "",
      h(
        "dl.kv",
        {},
        n.facts.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]),
      ),
      more,
    );
    if (more.of !== n.id) more.replaceChildren();
    more.of = n.id;
    detail?.(b.id, n.id)
      .then(blocks => more.of === n.id && more.replaceChildren(...blocks.map(make)))
      .catch(() => {}); // the page shows that its server does not answer
  }
  function draw() {
    const focus = grid.contains(document.activeElement) && document.activeElement.dataset.id;
    grid.setAttribute("aria-label", metric.name + " of each node; arrow keys move");
    grid.replaceChildren(
      ...b.nodes.map((n, i) => {
        const v = Math.round(100 * (n.values[metric.key] || 0));
        return h(
          "button.cell",
          {
            class: "cell" + (n.down ? " down" : v > 52 ? " hi" : ""),
            style: `--v:${n.down ? 0 : v}`,
            "data-id": n.id,
            tabindex: n.id === chosen ? 0 : -1,
            "aria-label": `${n.id}: ${metric.name} ${v} %${n.flag ? "; " + n.flag : ""}`,
            "data-tip": `${n.id}\n${metric.name} ${v} %${n.flag ? "\n! " + n.flag : ""}`,
            onclick() {
              chosen = n.id;
              show();
            },
            onfocus() {
              chosen = n.id;
              show();
            },
            onkeydown(e) {
              const cols = getComputedStyle(grid).gridTemplateColumns.split(" ").length,
                d = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: cols, ArrowUp: -cols }[e.key],
                next = grid.children[i + d];
              if (d && next) {
                e.preventDefault();
                this.tabIndex = -1;
                next.tabIndex = 0;
                next.focus();
              }
            },
          },
          String(i + 1),
          n.flag && h("span.f", { "aria-hidden": "true" }, n.down ? "✕" : "!"),
        );
      }),
    );
    if (focus) [...grid.children].find(c => c.dataset.id === focus)?.focus();
    show();
  }
  const out = h(
    ".two",
    {},
    h(
      ".panel.pad.heatbox",
      {},
      grid,
      h(".sh", { style: "margin:0" }, h("span.ramp", { class: "ramp r" }, "0 %", h("i"), "100 %")),
    ),
    side,
  );
  out.tools = [pick];
  out.update = now => {
    b = now;
    draw();
    return true;
  };
  draw();
  return out;
};

// Output: lines [number, time, level, writer, text, function], the newest first.
kinds.log = first => {
  let b = first;
  const q = h("input.field", {
      type: "search",
      placeholder: "Search call, rank or text   /",
      "aria-label": "Search the output",
      oninput: () => draw(),
      style: "width:260px",
    }),
    level = h(
      "select.field",
      { "aria-label": "Level", onchange: () => draw() },
      ["all lines", "standard error and warnings", "warnings"].map((t, i) => h("option", { value: i }, t)),
    ),
    said = h("span.soft.num", { role: "status" }),
    log = h(".log", { tabindex: 0, role: "log", "aria-label": "Output, newest first" });
  const mark = t => {
    const w = q.value.toLowerCase(),
      i = w ? t.toLowerCase().indexOf(w) : -1;
    return i < 0 ? [t] : [t.slice(0, i), h("mark", {}, t.slice(i, i + w.length)), t.slice(i + w.length)];
  };
  function draw() {
    const w = q.value.toLowerCase(),
      v = Number(level.value),
      list = b.rows.filter(
        r => (!w || (r[3] + " " + r[4]).toLowerCase().includes(w)) && (!v || r[2] >= (v === 1 ? 2 : 30)),
      );
    said.textContent =
      w || v
        ? `${list.length} of the last ${b.rows.length} lines`
        : b.rows.length < b.count
          ? `the last ${b.rows.length} lines`
          : `${b.rows.length} line${b.rows.length === 1 ? "" : "s"}`;
    const down = log.scrollTop;
    log.replaceChildren(
      ...list.map(r =>
        h(
          "div",
          {},
          h("span", { title: moment(r[1]) }, clock(r[1])),
          h("span", { title: r[3] }, r[5] != null ? sw(r[5]) : h("i.sw"), mark(r[3])),
          h(
            "span",
            {},
            r[2] >= 40 ? "error" : r[2] >= 30 ? "warning" : r[2] >= 20 ? "log" : r[2] === 2 ? "stderr" : "",
          ),
          h("span", { class: r[2] >= 40 ? "bad" : r[2] >= 30 ? "warn" : null }, mark(r[4])),
        ),
      ),
    );
    if (!list.length)
      log.append(
        h(".empty", {}, b.rows.length ? "No line has these words." : b.empty || "No call has written anything."),
      );
    log.scrollTop = down;
  }
  const out = h(".panel", {}, log);
  out.said = said;
  out.tools = [q, level];
  out.update = now => {
    b = now;
    draw();
    return true;
  };
  draw();
  return out;
};
