"use strict";
// ---- Searches ----
// There may be too many values for the arguments of Math.min.
const fit = b =>
  b.reduce(([lo, hi], v) => (v != null && isFinite(v) ? [Math.min(lo, v), Math.max(hi, v)] : [lo, hi]), [Infinity, -Infinity]);
function frame(g, x, y, W, H, B, L, xt, yt, name, xf = tickText) {
  yt.forEach(v => g.append(line(L, y(v), W, y(v)), text(L - 6, y(v) + 4, tickText(v), { "text-anchor": "end" })));
  xt.forEach(v =>
    g.append(
      line(x(v), H - B, x(v), H - B + 4, "ax"),
      text(x(v), H - B + 17, xf(v), { "text-anchor": x(v) > W - 12 ? "end" : "middle" }),
    ),
  );
  g.append(line(L, H - B, W, H - B, "ax"), text(W, H - 2, name, { "text-anchor": "end" }));
}
const cls = (b, t, base) => `${base}${t.top ? " top" : ""}${t.id === b.best ? " best" : ""}`,
  tipOf = t =>
    `trial ${t.id}, ${t.word}\n${t.value == null ? "no number" : value(t.value)} after ${t.ys.length} report${t.ys.length === 1 ? "" : "s"}`;
// Values over time: each trial's end, and the best so far. Log axis if all are above 0 and span much.
kinds.progress = charted((b, W) => {
  const ts = b.trials.filter(t => t.value != null),
    H = 280,
    B = 36,
    L = 48,
    g = svg(W, H, `The best ${b.metric} over time`),
    [lo, hi] = fit(ts.map(t => t.value)),
    log = lo > 0 && hi / lo > 20,
    pad = log ? 1 : (hi - lo) * 0.05 || 1,
    end = Math.max(...ts.map(t => t.end), 1e-3),
    x = scale(0, end, L + 6, W - 8),
    y = log ? scale(lo * 0.9, hi * 1.1, H - B, 8, true) : scale(lo - pad, hi + pad, H - B, 8);
  frame(
    g,
    x,
    y,
    W,
    H,
    B,
    L,
    timeTicks(end, W < 500 ? 4 : 7),
    log ? logTicks(lo * 0.9, hi * 1.1) : ticks(lo - pad, hi + pad),
    "since the start",
    tickTime,
  );
  ts.forEach(t =>
    g.append(
      s("circle", {
        cx: x(t.end),
        cy: y(t.value),
        r: 3,
        class: cls(b, t, t.ys.length > 1 ? "pt solid" : "pt"),
        "data-id": t.id,
        "data-tip": tipOf(t),
      }),
    ),
  );
  b.trials
    .filter(t => t.status === "ERROR")
    .forEach(t =>
      g.append(
        text(x(Math.min(end, t.end || 0)), H - B - 5, "✕", {
          class: "b",
          "text-anchor": "middle",
          "data-tip": `trial ${t.id} failed\n${t.error}`,
        }),
      ),
    );
  let d = "",
    best = null;
  [...ts]
    .sort((p, q) => p.end - q.end)
    .forEach(t => {
      if (best == null || (b.mode === "max" ? t.value > best : t.value < best)) {
        best = t.value;
        d += (d ? `H${x(t.end)}V` : `M${x(t.end)} `) + y(best);
      }
    });
  if (d)
    g.append(
      s("path", { d: d + `H${x(end)}`, class: "step" }),
      text(x(end), y(best) + (b.mode === "max" || y(best) + 22 > H - B ? -8 : 18), `${n3(best)}, trial ${b.best}`, {
        class: "k halo",
        "text-anchor": "end",
      }),
    );
  return g;
});
// Every trial by number of reports; one report is a ring, moved sideways so that rings do not hide each other.
kinds.reports = charted((b, W) => {
  const ts = b.trials.filter(t => t.ys.length),
    all = ts.flatMap(t => t.ys.map(p => p[1])),
    H = 280,
    B = 36,
    L = 48,
    g = svg(W, H, `${b.metric} after each report of each trial`),
    [lo, hi] = fit(all),
    log = lo > 0 && hi / lo > 20,
    most = Math.max(...ts.map(t => t.ys.at(-1)[0]), 1),
    far = most > 20,
    x = far ? scale(0.8, most * 1.1, L + 6, W - 8, true) : scale(0.5, most + 0.5, L + 6, W - 8),
    pad = log ? 1 : (hi - lo) * 0.05 || 1,
    y = log ? scale(lo * 0.9, hi * 1.1, H - B, 8, true) : scale(lo - pad, hi + pad, H - B, 8);
  const xt =
    b.rungs.length > 1 && b.rungs.length < 9
      ? b.rungs
      : far
        ? logTicks(1, most)
        : ticks(1, most, 8).filter(Number.isInteger);
  frame(g, x, y, W, H, B, L, xt, log ? logTicks(lo * 0.9, hi * 1.1) : ticks(lo - pad, hi + pad), "reports");
  [...ts]
    .sort((p, q) => !!p.top - !!q.top)
    .forEach(t => {
      const at = { "data-id": t.id, "data-tip": tipOf(t) };
      if (t.ys.length > 1)
        g.append(
          s("path", {
            d: t.ys.map(([k, v], i) => (i ? "L" : "M") + x(k).toFixed(1) + " " + y(v).toFixed(1)).join(""),
            class: cls(b, t, "ln"),
            ...at,
          }),
        );
      else
        g.append(
          s("circle", {
            cx: x(t.ys[0][0]) + (((Number(t.id.split("_").at(-1)) * 37) % 15) - 7),
            cy: y(t.ys[0][1]),
            r: 2.75,
            class: cls(b, t, "pt"),
            ...at,
          }),
        );
      if (t.status === "ERROR")
        g.append(
          text(x(t.ys.at(-1)[0]), y(t.ys.at(-1)[1]) + 4, "✕", {
            class: "b",
            "text-anchor": "middle",
            "data-tip": `trial ${t.id} failed\n${t.error}`,
          }),
        );
    });
  return g;
});
// A line through points [x, y], or with a band [x, y, least, most].
kinds.line = charted((b, W) => {
  const H = b.height,
    B = 36,
    L = 48,
    g = svg(W, H, `${b.name} by ${b.x}`),
    [lo, hi] = fit(b.points.flatMap(p => p.slice(1))),
    room = (hi - lo) * 0.05 || Math.abs(hi) * 0.1 || 1,
    end = Math.max(...b.points.map(p => p[0]), 1),
    x = scale(0, end, L + 6, W - 8),
    y = scale(lo - room, hi + room, H - B, 8),
    at = (p, i) => x(p[0]).toFixed(1) + " " + y(p[i]).toFixed(1),
    path = (points, i) => points.map((p, k) => (k ? "L" : "M") + at(p, i)).join("");
  if (!b.points.length) {
    g.append(text(W / 2, H / 2, b.empty || "no number yet", { "text-anchor": "middle" }));
    return g;
  }
  frame(g, x, y, W, H, B, L, ticks(0, end, W < 500 ? 3 : 6), ticks(lo - room, hi + room, H < 200 ? 3 : 5), b.x, short);
  const last = b.points.at(-1);
  if (last.length > 2)
    g.append(
      s("path", {
        d: path(b.points, 3) + path([...b.points].reverse(), 2).replace("M", "L") + "Z",
        fill: "var(--accent)",
        opacity: 0.14,
      }),
    );
  g.append(
    s("path", { d: path(b.points, 1), class: "step", "stroke-width": H < 200 ? 1.5 : 2.5 }),
    b.points.length === 1 ? s("circle", { cx: x(last[0]), cy: y(last[1]), r: 3, class: "pt solid top" }) : "",
    text(W - 8, Math.max(18, y(last[1]) - 8), n3(last[1]), { class: "k halo", "text-anchor": "end" }),
  );
  return g;
});
// Parallel coordinates: upright axes with values; on a phone, lying ones. Ranges are chosen by dragging along an axis.
kinds.parallel = first => {
  let b = first;
  const cut = {},
    clear = h(
      "button.btn",
      {
        hidden: "",
        onclick() {
          for (const k in cut) delete cut[k];
          redraw();
        },
      },
      "Clear ranges",
    );
  const inside = t =>
    b.axes.every((a, i) => {
      const c = cut[i],
        v = a.words ? a.words.indexOf(String(t.at[i])) : t.at[i];
      return !c || (v >= c[0] && v <= c[1]);
    });
  const box = chart(w => {
    const small = w < 620,
      n = b.axes.length,
      H = small ? n * 70 : 340,
      g = svg(
        w,
        H,
        "One line for each trial through its parameters and its result. The table below holds the same numbers.",
      ),
      along = small ? [16, w - 18] : [H - 18, 48],
      across = scale(0, Math.max(1, n - 1), small ? 26 : 62, small ? H - 28 : w - 62);
    const ax = b.axes.map((a, i) => {
      const v = b.trials.map(t => t.at[i]).filter(v => typeof v === "number"),
        lo = a.words ? -0.3 : Math.min(...v),
        hi = a.words ? a.words.length - 0.7 : Math.max(...v);
      return {
        ...a,
        c: across(i),
        lo,
        hi,
        f: scale(lo, hi === lo ? lo + 1 : hi, ...along, a.log),
        ticks: a.words
          ? a.words.map((_, k) => k).slice(0, 12)
          : hi === lo
            ? [lo]
            : a.values
              ? a.values
              : a.log
                ? logTicks(lo, hi)
                : ticks(lo, hi, small ? 4 : 6),
      };
    });
    const xy = (a, i, t) => {
      const v = t.at[i],
        q = a.f(a.words ? a.words.indexOf(String(v)) : v) + (a.words || a.values ? ((Number(t.id) * 53) % 13) - 6 : 0);
      return small ? [q, a.c] : [a.c, q];
    };
    [...b.trials]
      .sort((p, q) => !!p.top - !!q.top)
      .forEach(t => {
        const ps = ax.map((a, i) => xy(a, i, t)).filter(p => p.every(isFinite)),
          d = ps
            .map(([X, Y], i) => {
              if (!i) return `M${X} ${Y}`;
              const [x0, y0] = ps[i - 1],
                m = small ? (y0 + Y) / 2 : (x0 + X) / 2;
              return small ? `C${x0} ${m} ${X} ${m} ${X} ${Y}` : `C${m} ${y0} ${m} ${Y} ${X} ${Y}`;
            })
            .join("");
        g.append(
          s("path", { d, class: inside(t) ? cls(b, t, "ln") : "ln out", "data-id": t.id, "data-tip": tipOf(t) }),
        );
      });
    ax.forEach((a, i) => {
      const [p, q] = along,
        last = i === n - 1;
      g.append(small ? line(p, a.c, q, a.c, "ax") : line(a.c, p, a.c, q, "ax"));
      if (small) g.append(text(p, a.c - 9, a.name + (a.log ? ", log" : ""), { class: "nm halo" }));
      else
        g.append(
          text(a.c, 12, a.name.length > 18 ? a.name.slice(0, 17) + "…" : a.name, {
            class: "nm",
            "text-anchor": "middle",
          }),
          text(
            a.c,
            27,
            [
              a.log ? "log" : "",
              last ? (b.mode === "max" ? "high is good" : b.mode === "min" ? "low is good" : "") : "",
            ]
              .filter(Boolean)
              .join(", "),
            { "text-anchor": "middle" },
          ),
        );
      a.ticks.forEach(v => {
        const z = a.f(v),
          word = a.words ? a.words[v] : tickText(v),
          t = word.length > 10 ? word.slice(0, 9) + "…" : word;
        g.append(
          small ? line(z, a.c - 3, z, a.c + 3, "ax") : line(a.c - 4, z, a.c + 4, z, "ax"),
          small
            ? text(z, a.c + 14, t, { class: "halo", "text-anchor": "middle" })
            : text(last ? a.c + 9 : a.c - 8, z + 4, t, {
                class: "halo",
                "text-anchor": last ? "start" : "end",
              }),
        );
      });
      if (small) return;
      const c = cut[i],
        br = s("rect", {
          class: "brush",
          x: a.c - 8,
          width: 16,
          y: c ? a.f(c[1]) : 0,
          height: c ? Math.abs(a.f(c[0]) - a.f(c[1])) : 0,
        });
      g.append(br);
      let from = null;
      const inv = z => {
        const r = (z - p) / (q - p);
        return a.log ? Math.exp(Math.log(a.lo) + r * Math.log(a.hi / a.lo)) : a.lo + r * (a.hi - a.lo);
      };
      g.append(
        s("rect", {
          class: "hit",
          x: a.c - 14,
          y: q - 6,
          width: 28,
          height: p - q + 12,
          onpointerdown(e) {
            from = e.offsetY;
            this.setPointerCapture(e.pointerId);
          },
          onpointermove(e) {
            if (from == null) return;
            br.setAttribute("y", Math.min(from, e.offsetY));
            br.setAttribute("height", Math.abs(e.offsetY - from));
          },
          onpointerup(e) {
            if (Math.abs(e.offsetY - from) > 4)
              cut[i] = [inv(Math.max(from, e.offsetY)), inv(Math.min(from, e.offsetY))];
            else delete cut[i];
            from = null;
            redraw();
          },
        }),
      );
    });
    return g;
  });
  function redraw() {
    clear.hidden = !Object.keys(cut).length;
    box.redraw();
    const t = held.get("trials");
    if (t) {
      const ids = new Set(b.trials.filter(inside).map(t => t.id));
      t.block.pass = Object.keys(cut).length ? r => ids.has(r[0]) : null;
      t.inner.redraw();
    }
  }
  const out = h(".panel.pad", {}, box);
  out.tools = [clear];
  out.update = now => {
    b = now;
    box.redraw();
    return true;
  };
  return out;
};
