"use strict";
// ---- The page ----
const held = new Map();
let detail = null;
function place(b) {
  const was = held.get(b.id),
    state = JSON.stringify(b);
  if (was && was.state === state && !was.inner.querySelector?.("tr.open")) return;
  if (was) {
    was.state = state;
    b.pass = was.block.pass;
    was.block = b;
    if (was.inner.update(b) !== false) {
      if (was.said && b.said != null && !was.inner.said) was.said.textContent = b.said;
      return;
    }
    if (was.inner.opens) b.opens = was.inner.opens();
  }
  const inner = make(b),
    said = inner.said || h("span.soft.num", {}, b.said || ""),
    tools = inner.tools || [],
    e = b.title
      ? h(
          "section",
          { id: b.id, "aria-label": b.title },
          h(".sh", {}, h("h2", {}, b.title), said, tools.length ? h(".r", {}, tools) : ""),
          inner,
        )
      : fill(inner, { id: b.id }, []);
  if (was) was.e.replaceWith(e);
  else $("main").append(e);
  held.set(b.id, { e, inner, block: b, state, said });
}
function render(doc) {
  colours = doc.colours || {};
  document.title = doc.name + (doc.pill ? ": " + doc.pill[1].toLowerCase() : "");
  $("#name").textContent = doc.name;
  $("#meta").replaceChildren(...doc.meta.map(m => h("span", {}, m)));
  if (doc.pill) {
    $("#pill").hidden = false;
    $("#pill").className = "pill " + doc.pill[0];
    $("#pill").textContent = doc.pill[1];
  }
  banner(doc.banner);
  for (const id of [...held.keys()])
    if (!doc.blocks.some(b => b.id === id)) {
      held.get(id).e.remove();
      held.delete(id);
    }
  doc.blocks.forEach(place);
  doc.blocks.forEach((b, i) => {
    const e = held.get(b.id).e,
      at = $("main").children[i + 2];
    if (at !== e) $("main").insertBefore(e, at || null);
  });
  const nav = doc.blocks.filter(b => b.title),
    names = nav.map(b => b.title).join();
  if ($("nav").dataset.names !== names) {
    $("nav").dataset.names = names;
    $("nav").replaceChildren(...nav.map(b => h("a", { href: "#" + b.id }, b.title)));
  }
  document.body.dataset.ready = "yes";
}
function banner(b) {
  const state = JSON.stringify(b || null);
  if ($("#banner").dataset.state === state) return;
  $("#banner").dataset.state = state;
  $("#banner").replaceChildren(b ? h(".banner", { class: "banner " + b[0], role: "alert" }, b[1]) : "");
}
addEventListener("keydown", e => {
  if (e.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(e.target.tagName)) {
    e.preventDefault();
    $("main input[type=search]")?.focus();
  }
});
// One trial under the pointer, or with the focus, is marked in every chart and in the table.
let hotId = null;
function hot(id) {
  if (id === hotId) return;
  hotId = id;
  document.querySelectorAll(".hot").forEach(e => e.classList.remove("hot"));
  if (id)
    document.querySelectorAll(`[data-id="${CSS.escape(id)}"]`).forEach(e => {
      if (e.matches(".ln, .pt, tr")) e.classList.add("hot");
    });
}
for (const k of ["pointerover", "focusin"])
  $("main").addEventListener(k, e => {
    if (held.has("parallel")) hot(e.target.closest?.("[data-id]")?.dataset.id);
  });
const asked = new URLSearchParams(location.search);
function theme(t) {
  if (t === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = t;
  const b = $("#theme");
  b.textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[t];
  b.dataset.t = t;
  b.setAttribute("aria-label", "Colours: " + t + ". Change");
  try {
    localStorage.theme = t;
  } catch {}
}
let kept = "auto";
try {
  kept = localStorage.theme || kept;
} catch {}
theme(["auto", "light", "dark"].includes(asked.get("theme")) ? asked.get("theme") : kept);
$("#theme").onclick = e => {
  const o = ["auto", "light", "dark"];
  theme(o[(o.indexOf(e.currentTarget.dataset.t) + 1) % 3]);
};
if ($("#data")) render(JSON.parse($("#data").textContent));
