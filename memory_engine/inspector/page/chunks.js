// Chunks, and what changed between two states, as cards.

import { counted, cut, el, number, oneLine, prose, section, signed, visible } from "./dom.js";
import { place } from "./place.js";

const SIGNS = { added: "+", removed: "−", changed: "±", moved: "↕", compacted: "⊟", restored: "⊞" };
const LINES_MOST = 400;
const CARDS_MOST = 60;

const toLineage = (id) => place.go({ chunk: id, tab: "lineage" });

export const chunkLink = (id) =>
  el("button", {
    type: "button",
    class: "link mono",
    text: id,
    title: "Show where this chunk comes from",
    "aria-label": `Lineage of chunk ${id}`,
    onclick: () => toLineage(id),
  });

export const seqLink = (seq, text = `event ${number(seq)}`) =>
  el("button", { type: "button", class: "link", text, onclick: () => place.go({ seq }) });

export function callText(call) {
  return `${call.name}(${call.arguments ?? ""})`;
}

export function chunkCard(chunk, sign = "") {
  const facts = [
    chunk.retention,
    chunk.category === "working_flow" ? "" : chunk.category,
    chunk.status,
    chunk.name || chunk.label,
    chunk.container && `in ${chunk.container}`,
  ];
  return el(
    "article",
    { class: `card ${sign}` },
    el(
      "header",
      {},
      sign && el("span", { class: "sign", text: SIGNS[sign], title: sign, role: "img", "aria-label": sign }),
      chunkLink(chunk.id),
      el("span", { class: "badge", text: oneLine(chunk.type, 40) }),
      el("span", {
        class: "dim grow",
        text: facts
          .filter(Boolean)
          .map((fact) => oneLine(fact, 60))
          .join(" · "),
      }),
      el("span", { class: "tokens", text: `${number(chunk.tokens)} tok` }),
    ),
    chunk.text ? prose(chunk.text, { most: 1200, chars: chunk.chars }) : null,
    ...(chunk.calls ?? []).map((call) => prose(callText(call), { most: 1200, mono: true })),
    chunk.parent_ids?.length ? el("footer", { class: "dim" }, "from ", ...someIds(chunk.parent_ids)) : null,
  );
}

function someIds(ids, most = 4) {
  const shown = ids.length <= most ? ids : [...ids.slice(0, 2), ids.at(-1)];
  const links = shown.flatMap((id, n) => [n ? " " : "", chunkLink(id)]);
  if (shown.length < ids.length) links.splice(-1, 0, ` … ${number(ids.length - shown.length)} more … `);
  return links;
}

// The first cards of many, then a button for those that follow.
function cards(items, make, most = CARDS_MOST) {
  const box = el("div", { class: "cards" });
  const add = (from) => {
    box.append(...items.slice(from, from + most).map(make));
    const left = items.length - from - most;
    if (left > 0) {
      const more = el("button", {
        type: "button",
        text: `Show ${number(Math.min(left, most))} more of ${number(left)}`,
      });
      more.addEventListener("click", () => {
        more.remove();
        add(from + most);
      });
      box.append(more);
    }
  };
  add(0);
  return box;
}

// ---- what changed

export function tokensLine([before, after], [chunksBefore, chunksAfter]) {
  return el(
    "p",
    { class: "sum" },
    `${number(chunksBefore)} → ${counted(chunksAfter, "chunk")}, ${number(before)} → ${counted(after, "token")} `,
    el("span", { class: "delta", text: signed(after - before) }),
  );
}

export function changes(diff) {
  const parts = [];
  const cardsOf = (title, items, make) =>
    items?.length && parts.push(section(`${title} (${number(items.length)})`, cards(items, make)));
  cardsOf("Folded by a compaction", diff.compacted, compactedCard);
  cardsOf("Unfolded: the originals are back", diff.restored, restoredCard);
  cardsOf("Added", diff.added, (chunk) => chunkCard(chunk, "added"));
  cardsOf("Removed", diff.removed, (chunk) => chunkCard(chunk, "removed"));
  cardsOf("Changed", diff.changed, changedCard);
  if (diff.moved?.length)
    parts.push(
      section(
        `Moved (${number(diff.moved.length)})`,
        el("p", {}, el("span", { class: "sign", text: SIGNS.moved }), " ", ...someIds(diff.moved, 12)),
      ),
    );
  return parts;
}

function restoredCard({ summary, covers }) {
  return el(
    "article",
    { class: "card compacted" },
    el(
      "header",
      {},
      el("span", { class: "sign", text: SIGNS.restored, role: "img", "aria-label": "unfolded" }),
      chunkLink(summary),
      el("span", { class: "grow", text: `no longer stands for ${counted(covers.length, "chunk")}` }),
    ),
    el("footer", { class: "dim" }, ...someIds(covers, 8)),
  );
}

function compactedCard({ summary, covers }) {
  return el(
    "article",
    { class: "card compacted" },
    el(
      "header",
      {},
      el("span", { class: "sign", text: SIGNS.compacted, role: "img", "aria-label": "folded" }),
      summary ? chunkLink(summary) : "dropped",
      el("span", { class: "grow", text: `stands for ${counted(covers.length, "chunk")}` }),
    ),
    el("footer", { class: "dim" }, ...someIds(covers, 8)),
  );
}

const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1)) ?? "";

function changedCard({ before, after, fields }) {
  const rows = Object.entries(fields ?? {}).map(([name, [old, now]]) =>
    el(
      "div",
      { class: "field" },
      el("strong", { text: name }),
      el("div", { class: "line minus" }, el("i", { text: "−" }), prose(asText(old), { most: 600 })),
      el("div", { class: "line plus" }, el("i", { text: "+" }), prose(asText(now), { most: 600 })),
    ),
  );
  return el(
    "article",
    { class: "card changed" },
    el(
      "header",
      {},
      el("span", { class: "sign", text: SIGNS.changed, role: "img", "aria-label": "changed" }),
      chunkLink(before),
      before === after ? null : "→",
      before === after ? null : chunkLink(after),
    ),
    ...rows,
  );
}

// A unified diff, a line each: the first character says what became of it.
export function unified(lines) {
  const box = el("div", { class: "unified mono", role: "group", "aria-label": "Context, line by line" });
  const kinds = { "+": "plus", "-": "minus", "@": "hunk" };
  const put = (some) => {
    for (const line of some) {
      const heads = line.startsWith("+++") || line.startsWith("---");
      const kind = heads ? "hunk" : (kinds[line[0]] ?? "");
      const sign = heads || line[0] === "@" ? "" : line[0] === "-" ? "−" : (line[0] ?? " ");
      box.append(
        el(
          "div",
          { class: `line ${kind}` },
          el("i", { text: sign }),
          el("span", { text: visible(cut(sign ? line.slice(1) : line, 4000)), dir: "auto" }),
        ),
      );
    }
  };
  put(lines.slice(0, LINES_MOST));
  if (lines.length > LINES_MOST) {
    const more = el("button", { type: "button", text: `Show all ${number(lines.length)} lines` });
    more.addEventListener("click", () => {
      more.remove();
      put(lines.slice(LINES_MOST));
    });
    return el("div", {}, box, more);
  }
  return box;
}

export function viewsChanged(views) {
  const named = Object.entries(views ?? {}).filter(
    ([, { added, removed, changed }]) => added.length + removed.length + changed.length,
  );
  if (!named.length) return null;
  const row = (kind, sign) => (key) =>
    el("div", { class: `line ${kind}` }, el("i", { text: sign }), el("code", { text: visible(key) }));
  return section(
    "Views",
    ...named.map(([name, { added, removed, changed }]) =>
      el(
        "div",
        { class: "card" },
        el("header", {}, el("strong", { text: name })),
        cards(
          [
            ...added.map((key) => ["plus", "+", key]),
            ...removed.map((key) => ["minus", "−", key]),
            ...changed.map((key) => ["both", "±", key]),
          ],
          ([kind, sign, key]) => row(kind, sign)(key),
        ),
      ),
    ),
  );
}

export function facts(pairs) {
  const list = el("dl", { class: "facts" });
  for (const [name, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    const shown =
      value instanceof Node
        ? value
        : el("span", { text: visible(typeof value === "object" ? JSON.stringify(value) : value), dir: "auto" });
    list.append(el("dt", { text: name }), el("dd", {}, shown));
  }
  return list;
}
