// What is derived from the log, as it was at the chosen seq: scratchpad, conversation, preferences, memory.

import { counted, el, empty, failure, number, visible } from "./dom.js";
import { json } from "./json_view.js";
import { place } from "./place.js";
import { get } from "./server.js";

const PAGE = 200;
const open = new Set(); // names of the views that are open, whatever the seq

export const viewsTab = {
  id: "views",
  title: "Views",
  stays: true,
  key: ({ seq }) => String(seq ?? 0),
  load: ({ thread, seq }, signal) => get("views", { thread, seq: seq ?? 0 }, signal),
  show(body, { views }, look) {
    body.replaceChildren(
      el("h2", {}, "Views after ", el("span", { class: "dim", text: `event ${number(look.seq ?? 0)}` })),
    );
    const [used, others] = [views.filter(({ used }) => used), views.filter(({ used }) => !used)];
    if (!used.length) body.append(empty("No view has a row here"));
    for (const { name, rows } of used) body.append(view(name, rows, look));
    if (others.length)
      body.append(
        el(
          "details",
          { class: "dim" },
          el("summary", { text: `${counted(others.length, "view")} that nothing has used yet` }),
          ...others.map(({ name, rows }) => view(name, rows, look)),
        ),
      );
  },
};

function view(name, count, look) {
  const table = el("div", { class: "view-rows" });
  const shown = el(
    "details",
    { class: "view", open: open.has(name) },
    el("summary", {}, el("strong", { text: name }), " ", el("span", { class: "dim", text: counted(count, "row") })),
    table,
  );
  let begun = false;
  const begin = () => {
    if (begun) return;
    begun = true;
    more(table, name, look, 0);
  };
  shown.addEventListener("toggle", () => {
    if (shown.open) open.add(name);
    else open.delete(name);
    if (shown.open) begin();
  });
  if (shown.open) begin();
  return shown;
}

// A row is explained as a chunk is.
function lineage(name, key) {
  return el("button", {
    type: "button",
    class: "link",
    text: "where from",
    "aria-label": `Lineage of ${visible(key)}`,
    onclick: () => place.go({ chunk: `view:${name}/${key}`, tab: "lineage" }),
  });
}

async function more(table, name, { thread, seq }, offset) {
  try {
    const { total, rows } = await get("view", { thread, seq: seq ?? 0, name, offset, limit: PAGE });
    for (const { key, value } of rows)
      table.append(
        el(
          "div",
          { class: "view-row" },
          el("div", { class: "view-key" }, el("code", { text: visible(key) }), lineage(name, key)),
          json(value, { most: 2000 }),
        ),
      );
    const got = offset + rows.length;
    if (got < total && rows.length) {
      const button = el("button", { type: "button", text: `Show more (${number(total - got)} left)` });
      button.addEventListener("click", () => {
        button.remove();
        more(table, name, { thread, seq }, got);
      });
      table.append(button);
    }
  } catch (error) {
    const box = failure(error, () => {
      box.remove();
      more(table, name, { thread, seq }, offset);
    });
    table.append(box);
  }
}
