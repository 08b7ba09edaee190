// The family of the open thread: what was forked from what, and where.

import { counted, el, number, oneLine, setStyle } from "./dom.js";
import { place } from "./place.js";
import { get } from "./server.js";

export const forksTab = {
  id: "forks",
  title: "Forks",
  key: ({ head }) => String(head),
  load: ({ thread }, signal) => get("forks", { thread }, signal),
  show(body, root, { thread }) {
    const most = Math.max(1, ...everyOne(root).map(({ events }) => events));
    const tree = el("ul", { class: "forks", role: "tree", "aria-label": "Forks" });
    for (const { node, depth, parent } of inOrder(root)) tree.append(lane({ node, depth, parent, most, thread }));
    body.replaceChildren(el("h2", { text: "Forks" }), tree);
    if (!root.children.length) body.append(el("p", { class: "dim", text: "Nothing was forked from this thread." }));
    else
      body.append(
        el("p", {
          class: "dim",
          text: "A bar runs from where a fork begins to its end. “compare” marks that end as A, and opens the diff.",
        }),
      );
  },
};

function inOrder(node, depth = 0, parent = null) {
  return [{ node, depth, parent }, ...node.children.flatMap((child) => inOrder(child, depth + 1, node))];
}

const everyOne = (root) => inOrder(root).map(({ node }) => node);

function lane({ node, depth, parent, most, thread }) {
  const own = el("span", { class: "own" });
  const from = node.seq ?? 0;
  setStyle(own, { left: `${(100 * from) / most}%`, width: `${Math.max(0.6, (100 * (node.events - from)) / most)}%` });
  const name = el("button", {
    type: "button",
    class: "link",
    text: oneLine(node.id, 80),
    dir: "ltr",
    onclick: () => place.go(node.id === thread ? { tab: "event" } : { thread: node.id, seq: null, chunk: "" }),
  });
  const begun = parent
    ? el("button", {
        type: "button",
        class: "link",
        text: `at ${number(from)}`,
        title: `Go to event ${number(from)} of ${oneLine(parent.id, 60)}`,
        onclick: () => place.go(parent.id === thread ? { seq: from } : { thread: parent.id, seq: from, chunk: "" }),
      })
    : null;
  const compare =
    node.id === thread
      ? null
      : el("button", {
          type: "button",
          text: "compare",
          "aria-label": `Compare with ${oneLine(node.id, 60)}`,
          onclick: () => place.go({ mark: { thread: node.id, seq: node.events }, tab: "diff" }),
        });
  const row = el(
    "li",
    { role: "treeitem", "aria-level": depth + 1, "aria-current": node.id === thread ? "true" : null },
    el(
      "div",
      { class: "fork-line" },
      depth ? el("span", { class: "dim", text: "└", "aria-hidden": "true" }) : null,
      name,
      begun,
      el("span", { class: "dim grow", text: counted(node.events, "event") }),
      compare,
    ),
    el("div", { class: "lane", "aria-hidden": "true" }, own),
  );
  setStyle(row.firstChild, { "padding-left": `${depth * 18}px` });
  return row;
}
