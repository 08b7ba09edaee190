// A question to memory: what it finds and why each was ranked so, and what of it comes into a context.

import { counted, el, empty, failure, number, oneLine, section, setStyle } from "./dom.js";
import { place } from "./place.js";
import { get } from "./server.js";
import { contextParts, hit } from "./tab_context.js";

const BUDGET = 2000;
const SHARE_LEAST = 0.0005;

let budget = String(BUDGET);

export const recallTab = {
  id: "recall",
  title: "Recall",
  stays: true,
  key: ({ seq }) => (place.recall ? `${seq ?? 0}|${budget}|${place.recall}` : null),
  nothing: () => "Ask a question to see what memory finds, why each passage ranks there, and what a context takes.",
  controls(bar, again) {
    const asked = el("input", { type: "text", id: "recall-question", placeholder: "a question", value: place.recall, autocomplete: "off" });
    const field = el("input", { type: "number", id: "recall-budget", min: 1, step: 100, value: budget, inputmode: "numeric" });
    let pause;
    const typed = () => {
      clearTimeout(pause);
      pause = setTimeout(() => {
        budget = Number(field.value) >= 1 ? String(Math.floor(Number(field.value))) : "";
        place.go({ recall: asked.value.trim() });
        again();
      }, 300);
    };
    for (const input of [asked, field]) input.addEventListener("input", typed);
    bar.append(
      el("label", { for: "recall-question", text: "Question" }),
      asked,
      el("label", { for: "recall-budget", text: "Budget of the context" }),
      field,
    );
  },
  async load({ thread, seq }, signal) {
    const at = { thread, seq: seq ?? 0, query: place.recall };
    const [found, context] = await Promise.all([
      get("recall", at, signal),
      get("context", { ...at, max_tokens: budget }, signal).catch((error) => {
        if (signal.aborted) throw error;
        return { error };
      }),
    ]);
    return { found, context };
  },
  show(body, { found, context }) {
    const cards = found.hits.map((one, n) => hit(one, fate(one, context), ranked(one, n)));
    body.replaceChildren(
      el("h2", { text: "What memory finds" }),
      el("p", { class: "sum", text: `${counted(found.hits.length, "passage")}, best first, ${found.how === "hybrid" ? "by words and vectors" : "by words"}${found.waiting ? `; ${number(found.waiting)} wait for a vector` : ""}${found.unindexed ? `; ${number(found.unindexed)} are not indexed yet: ask again` : ""}` }),
      found.failure ? failure({ title: "Without a model", message: found.failure }) : "",
      cards.length ? el("div", { class: "cards" }, ...cards) : empty("Nothing that answers this"),
      section("The context with this question", ...(context.error ? [failure(context.error)] : contextParts(context))),
    );
  },
};

// What became of a passage in the context.
function fate({ seq, event_id: id }, { error, recalled = [], included = [] }) {
  if (error) return "";
  if (recalled.some((one) => one.event_id === id)) return el("span", { class: "badge strong", text: "came in" });
  if (included.some((chunk) => chunk.startsWith(`${seq}.`))) return el("span", { class: "badge", text: "already in the context" });
  return el("span", { class: "badge cut", text: "cut" });
}

// The parts of a score as one bar, with their names and amounts.
function ranked({ score, parts }, n) {
  const named = Object.entries(parts ?? {}).filter(([, amount]) => Math.abs(amount) >= SHARE_LEAST);
  named.sort(([, a], [, b]) => b - a);
  const rows = named.map(([name, amount]) => {
    const bar = el("span", { class: "amount" });
    setStyle(bar, { width: `${Math.min(100, Math.max(0, 100 * amount))}%` });
    return el(
      "tr",
      {},
      el("th", { scope: "row", text: oneLine(name, 40) }),
      el("td", { class: "bar-cell" }, bar),
      el("td", { class: "num", text: amount.toFixed(3) }),
    );
  });
  return el(
    "details",
    { open: n < 3 },
    el("summary", { text: `place ${n + 1}: score ${score.toFixed(3)}` }),
    el("table", { class: "bars", "aria-label": `Parts of the score at place ${n + 1}` }, el("tbody", {}, ...rows)),
  );
}
