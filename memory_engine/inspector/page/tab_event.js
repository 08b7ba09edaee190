// What happened at the chosen seq, and what it changed.

import { changes, facts, tokensLine, unified, viewsChanged } from "./chunks.js";
import { el, empty, failure, ident, moment, number, oneLine, section, visible } from "./dom.js";
import { json } from "./json_view.js";
import { place } from "./place.js";
import { get } from "./server.js";

export const eventTab = {
  id: "event",
  title: "Event",
  key: ({ seq }) => (seq ? String(seq) : null),
  nothing: ({ head }) => (head ? "Before the first event: nothing has happened yet" : "This thread has no event yet"),
  load: ({ thread, seq }, signal) => get("event", { thread, seq, quick: 1 }, signal),
  show(body, data, look) {
    const event = data;
    shown = data;
    if (data.is_later) later(this, body, data, look);
    const change = data.change?.error ? null : data.change;
    body.replaceChildren(
      el(
        "h2",
        {},
        el("span", { class: "dim", text: number(event.seq) }),
        " ",
        oneLine(event.type, 80),
        el("span", { class: "badge", text: `v${event.version}` }),
      ),
      facts([
        ["recorded", moment(event.recorded_at)],
        ["occurred", event.occurred_at ? moment(event.occurred_at) : null],
      ]),
      ids(event),
      data.change?.error ? section("What it changed", failure(data.change.error)) : "",
      data.is_later ? section("What it changed", el("p", { class: "dim", role: "status", text: "The log up to here is being read…" })) : whatItChanged(change, data.operations ?? []),
      section("Payload", json(event.payload, { most: 6000 })),
    );
  },
};

let shown = null; // the event in view

// What an event of a long log changed is told once the log was read.
async function later(tab, body, data, look) {
  try {
    const whole = await get("event", { thread: look.thread, seq: data.seq });
    if (shown === data) tab.show(body, whole, look);
  } catch (error) {
    if (shown === data) body.append(failure(error));
  }
}

let idsOpen = false; // whoever looks at ids looks at those of the next event too

function ids(event) {
  const box = el(
    "details",
    { class: "ids", open: idsOpen },
    el("summary", { text: "Ids and hash" }),
    facts([
      ["id", ident(event.id, "event id")],
      ["caused by", event.causation_id ? ident(event.causation_id, "event id") : null],
      ["correlation", event.correlation_id ? ident(event.correlation_id, "correlation id") : null],
      ["hash", event.hash ? ident(event.hash, "hash") : null],
    ]),
  );
  box.addEventListener("toggle", () => (idsOpen = box.open));
  return box;
}

function whatItChanged(change, operations) {
  if (!change) return "";
  const parts = changes(change);
  const views = viewsChanged(change.views);
  if (views) parts.push(views);
  const box = section("What it changed", tokensLine(change.tokens, change.chunks), ...parts);
  if (!parts.length) box.append(empty("Nothing in the state and nothing in the views"));
  if (change.context?.lines.length) {
    const shown = el(
      "details",
      {},
      el("summary", { text: "In the context of the next call" }),
      unified(change.context.lines),
    );
    box.append(shown);
  }
  if (operations.length) {
    const listed = el(
      "ol",
      { class: "operations mono" },
      ...operations.slice(0, 200).map((line) => el("li", { text: visible(oneLine(line, 400)) })),
    );
    box.append(
      el(
        "details",
        {},
        el("summary", { text: operations.length === 1 ? "1 operation" : `${number(operations.length)} operations` }),
        listed,
      ),
    );
  }
  const { mark } = place;
  if (!mark)
    box.append(
      el("p", { class: "dim hint", text: "d marks this point; choose another, and the tab Diff compares the two." }),
    );
  return box;
}
