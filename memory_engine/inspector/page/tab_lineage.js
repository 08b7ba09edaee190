// Where a chunk comes from: its versions, what a summary stands for, down to the events.

import { callText, chunkLink, facts, seqLink } from "./chunks.js";
import { el, empty, ident, moment, number, oneLine, prose } from "./dom.js";
import { Picture } from "./picture.js";
import { get } from "./server.js";

const OFFERED = 24;

// The chunk that was asked for; else the first that the chosen event made.
const startOf = ({ chunk, event }) => chunk || event?.chunks?.[0] || "";

export const lineageTab = {
  id: "lineage",
  title: "Lineage",
  key: (look) => {
    const chunk = startOf(look);
    return chunk ? `chunk|${chunk}` : `offer|${look.seq ?? 0}`;
  },
  controls(bar, again) {
    this.field = el("input", {
      type: "text",
      id: "lineage-chunk",
      placeholder: "12.0",
      spellcheck: "false",
      autocomplete: "off",
    });
    this.field.addEventListener("keydown", (event) => event.key === "Enter" && this.go(this.field.value.trim(), again));
    this.others = el("span", { class: "others" });
    bar.append(el("label", { for: "lineage-chunk", text: "Chunk" }), this.field, this.others);
  },
  go: () => {},
  follows(look) {
    if (document.activeElement !== this.field) this.field.value = startOf(look);
    this.go = (chunk, again) => (look.choose({ chunk }), again());
    const made = look.event?.chunks ?? [];
    this.others.replaceChildren(
      ...(made.length
        ? [`of event ${number(look.seq)}: `, ...made.slice(0, 6).flatMap((id) => [chunkLink(id), " "])]
        : []),
    );
  },
  async load(look, signal) {
    const { thread, seq } = look;
    const chunk = startOf(look);
    if (chunk) return { why: await get("why", { thread, chunk }, signal) };
    return { offered: await get("state", { thread, seq: seq ?? 0, offset: 0, limit: 200 }, signal) };
  },
  show(body, { why, offered }, look) {
    if (why) show(body, why, look);
    else offer(body, offered.chunks);
  },
};

// No chunk was chosen yet: those of the state are offered, summaries first.
function offer(body, chunks) {
  const rank = (chunk) => (chunk.type === "compacted" ? 0 : 1);
  const some = [...chunks].sort((a, b) => rank(a) - rank(b)).slice(0, OFFERED);
  if (!some.length) {
    body.replaceChildren(empty("The state is empty here: no chunk to explain"));
    return;
  }
  const row = (chunk) =>
    el(
      "li",
      {},
      chunkLink(chunk.id),
      " ",
      el("span", { class: "badge", text: oneLine(chunk.type, 30) }),
      " ",
      el("span", { class: "dim", text: told(chunk), dir: "auto" }),
    );
  body.replaceChildren(
    el("h2", { text: "Where does a chunk come from?" }),
    el("p", { class: "dim", text: "Choose one of the state at this point:" }),
    el("ul", { class: "offer" }, ...some.map(row)),
  );
}

// What a chunk says; a call of a tool has no text, but a name and arguments.
const told = ({ text, calls = [], label }) =>
  oneLine([text, ...calls.map(callText)].filter(Boolean).join(" "), 80) || oneLine(label || "without text", 80);

function show(body, why, look) {
  const details = el("div", { class: "node", "aria-live": "polite" });
  const picture = new Picture(why, (item) => describe(details, item, look));
  body.replaceChildren(
    el("h2", {}, "Where ", el("code", { text: oneLine(why.id, 60) }), " comes from"),
    picture.bar,
    picture.frame,
    details,
  );
  picture.settle();
  describe(details, why, look);
}

function describe(box, item, look) {
  const here = item.thread_id === look.thread;
  const at = item.seq
    ? here
      ? seqLink(item.seq)
      : `event ${number(item.seq)} of ${oneLine(item.thread_id, 60)}`
    : null;
  const told = Object.entries(item.facts ?? {}).map(([name, value]) => [name, fact(name, value)]);
  box.replaceChildren(
    el("h3", {}, el("span", { class: "badge strong", text: item.kind }), " ", oneLine(item.title, 160)),
    facts([["id", item.id ? ident(item.id) : null], ["event", at === null ? null : el("span", {}, at)], ...told]),
    item.text ? prose(item.text, { most: 3000 }) : "",
  );
}

function fact(name, value) {
  if (Array.isArray(value) && value.every((one) => /^\d+\.\d+$/.test(one)))
    return el("span", {}, ...value.slice(0, 40).flatMap((id) => [chunkLink(id), " "]));
  return name === "at" ? moment(value) : value;
}
