// What people said up to the chosen seq, what became of each statement, and what is pinned.

import { seqLink } from "./chunks.js";
import { counted, el, empty, number, oneLine, prose } from "./dom.js";
import { get } from "./server.js";

const GROUPS = [
  ["stands", "Still stands"],
  ["superseded", "Superseded by a later statement"],
  ["spent", "Spent: answered, or used by the agent"],
];

export const briefTab = {
  id: "brief",
  title: "Brief",
  stays: true,
  key: ({ seq }) => String(seq ?? 0),
  load: ({ thread, seq }, signal) => get("brief", { thread, seq: seq ?? 0 }, signal),
  show(body, { seq, total, standing, statements }) {
    body.replaceChildren(
      el("h2", {}, "What people said, after ", el("span", { class: "dim", text: `event ${number(seq)}` })),
      el("p", { class: "sum", text: `${number(standing)} of ${counted(total, "statement")} still stand` }),
    );
    if (total > statements.length)
      body.append(el("p", { class: "dim", text: `the last ${number(statements.length)} are shown` }));
    for (const [status, title] of GROUPS) {
      const found = statements.filter((one) => one.status === status);
      if (found.length) body.append(group(title, found, status !== "spent"));
    }
    if (!statements.length) body.append(empty("Nobody has said anything here"));
  },
};

function group(title, statements, open) {
  return el(
    "details",
    { open },
    el("summary", {}, el("strong", { text: title }), " ", el("span", { class: "dim", text: number(statements.length) })),
    el("div", { class: "cards" }, ...statements.map(statement)),
  );
}

function statement({ seq, thread_id: thread, speaker, kind, status, by, origin, pinned, text, request, first, asked, later }) {
  return el(
    "article",
    { class: `card message ${pinned ? "system" : "user"}` },
    el(
      "header",
      {},
      origin === "parent" ? el("span", { class: "dim", text: `event ${number(seq)} of ${oneLine(thread, 60)}` }) : seqLink(seq),
      el("span", { class: "badge", text: oneLine(pinned ? `pinned by ${WHO[origin]}` : kind, 40) }),
      request && el("span", { class: "badge strong", text: "request in work" }),
      first && el("span", { class: "badge", text: "first request" }),
      speaker && el("span", { class: "dim grow", text: oneLine(speaker, 60) }),
    ),
    asked && el("p", { class: "dim", text: `asked: ${oneLine(asked, 240)}` }),
    prose(text, { most: 1200 }),
    status !== "stands" &&
      el("footer", { class: "dim" }, status, by > 0 && [" by ", seqLink(by)], later && `: ${oneLine(later, 200)}`),
  );
}

const WHO = { person: "a person", agent: "the agent", tool: "the agent after reading a tool", parent: "the parent" };

// The statements that a context has to show, the missing ones first.
export function stood({ stood: statements }) {
  if (!statements?.length) return "";
  const missing = statements.filter((one) => one.missing);
  return el(
    "details",
    { open: missing.length > 0 },
    el("summary", {
      text: `${counted(statements.length, "standing statement")}, ${missing.length ? `${number(missing.length)} missing: no room` : "none missing"}`,
    }),
    el(
      "ul",
      {},
      ...[...missing, ...statements.filter((one) => !one.missing)].map((one) =>
        el("li", {}, seqLink(one.seq), " ", one.missing && el("span", { class: "badge cut", text: "missing" }), " ", oneLine(one.text, 300)),
      ),
    ),
  );
}
