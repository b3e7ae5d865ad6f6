"use strict";
// The live page: it asks for the blocks that have changed.
const token = asked.get("token") || "",
  ask = (path, more = {}, how = {}) => fetch(`${path}?${new URLSearchParams({ token, ...more })}`, how);
const now = new Map();
let last = 0,
  paused = null,
  over = false;
detail = async (block, id) => (over ? null : (await ask("detail", { block, id })).json());
kinds.stack = first => {
  const text = h("pre", { hidden: "", tabindex: 0, style: "overflow:auto;max-height:300px;margin-top:8px" });
  const name = `Stack of pid ${first.pid} on ${first.host}`;
  const button = h(
    "button.btn.sm",
    {
      async onclick(e) {
        e.stopPropagation();
        button.textContent = "Looking…";
        try {
          text.textContent = (await (await ask("stack", { pid: first.pid, host: first.host }, { method: "POST" })).json()).text;
        } catch (error) {
          text.textContent = String(error);
        }
        text.hidden = false;
        button.textContent = `${name} again`;
      },
    },
    name,
  );
  const out = h("div", {}, button, text);
  out.update = now => now.pid === first.pid && now.host === first.host;
  return out;
};
function take(event) {
  for (const b of event.blocks) now.set(b.id, b);
  last = Date.now();
  over = !/run|warn/.test(event.head.pill[0]);
  document.body.classList.remove("stale");
  $("#pause").hidden = over;
  render({ ...event.head, blocks: event.head.order.map(id => now.get(id)) });
  fresh();
}
function fresh() {
  const age = (Date.now() - last) / 1000,
    text = paused
      ? `paused at ${clock(last / 1000)}`
      : !last
        ? "asking…"
        : over
          ? ""
          : age < 3
            ? "updated now"
            : `updated ${Math.round(age)} s ago`;
  if (last && !paused && !over && age > 10) document.body.classList.add("stale");
  if ($("#fresh").textContent !== text) $("#fresh").textContent = text;
}
const pause = h(
  "button.btn",
  {
    id: "pause",
    "aria-pressed": "false",
    onclick() {
      const held = paused;
      paused = paused ? null : [];
      pause.textContent = paused ? "Go on" : "Pause";
      pause.setAttribute("aria-pressed", String(!!paused));
      if (held?.length) take({ head: held.at(-1).head, blocks: held.flatMap(e => e.blocks) });
      fresh();
    },
  },
  "Pause",
);
$("#buttons").prepend(pause, " ");
function receive(event) {
  if (!paused) return take(event);
  document.body.classList.remove("stale");
  banner(event.head.banner);
  const before = (paused.at(-1)?.blocks || []).filter(b => !event.blocks.some(n => n.id === b.id));
  paused = [{ head: event.head, blocks: [...before, ...event.blocks] }];
}
function missing(text) {
  if (over) return;
  document.body.classList.add("stale");
  const then = last ? ` since ${clock(last / 1000)}: the numbers are those of then` : "";
  banner(["warn", `No answer from mpi-runtime view${then}. ${text}`]);
}
// A hidden tab asks less often: browsers see to that, and its title needs no more.
let number = 0,
  next = 0;
async function look() {
  clearTimeout(next);
  next = Infinity;
  let event = null;
  try {
    const answer = await ask("changes", { since: number }, { signal: AbortSignal.timeout(10000) });
    if (answer.status === 403) return missing("It was started again, and has another address: open that.");
    event = await answer.json();
  } catch {
    missing("Trying again. If it has ended, start it again, and open the address that it prints.");
  }
  next = setTimeout(look, document.hidden || !event ? 5000 : 1000);
  number = event?.number ?? number;
  if (event?.head) receive(event);
}
document.addEventListener("visibilitychange", () => document.hidden || next === Infinity || look());
look();
setInterval(fresh, 1000);
