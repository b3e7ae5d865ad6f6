"use strict";
// The live page: the document arrives block by block as server-sent events.
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
const events = new EventSource(`events?${new URLSearchParams({ token })}`);
events.onmessage = e => {
  const event = JSON.parse(e.data);
  if (paused) {
    paused = [
      {
        head: event.head,
        blocks: [...(paused.at(-1)?.blocks || []).filter(b => !event.blocks.some(n => n.id === b.id)), ...event.blocks],
      },
    ];
  } else take(event);
};
events.onerror = () => {
  if (over) return;
  document.body.classList.add("stale");
  banner([
    "warn",
    `No answer from mpi-runtime view${last ? ` since ${clock(last / 1000)}: the numbers are those of then` : ""}. Trying again. If it has ended, start it again.`,
  ]);
};
setInterval(fresh, 1000);
