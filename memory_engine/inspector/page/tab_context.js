// What a model would see at the chosen seq, within a budget.

import { callText, chunkLink, seqLink } from "./chunks.js";
import { counted, day, el, empty, failure, number, oneLine, prose, section, setStyle } from "./dom.js";
import { place } from "./place.js";
import { get } from "./server.js";
import { stood } from "./tab_brief.js";

const PARTS = [
  ["pinned", "always in: instructions, critical chunks, scratchpad, task, to-do list, environment"],
  ["standing", "for every call: preferences, agent.md, the agent's memory, a screen, a playbook"],
  ["summary", "summaries of compactions"],
  ["recent", "the newest of the conversation"],
  ["recalled", "recalled for a question"],
];

export const contextTab = {
  id: "context",
  title: "Context",
  stays: true,
  key: ({ seq }) => `${seq ?? 0}|${place.budget}|${place.question}`,
  controls(bar) {
    const field = el("input", {
      type: "number",
      id: "budget",
      min: 1,
      step: 100,
      placeholder: "no limit",
      value: place.budget,
      inputmode: "numeric",
    });
    const asked = el("input", {
      type: "text",
      id: "question",
      placeholder: "a question",
      value: place.question,
      autocomplete: "off",
    });
    let pause;
    const typed = () => {
      clearTimeout(pause);
      pause = setTimeout(() => {
        const budget = field.value && Number(field.value) >= 1 ? String(Math.floor(Number(field.value))) : "";
        place.go({ budget, question: asked.value.trim() });
      }, 300);
    };
    for (const input of [field, asked]) input.addEventListener("input", typed);
    bar.append(
      el("label", { for: "budget", text: "Budget in tokens" }),
      field,
      el("label", { for: "question", text: "Question" }),
      asked,
    );
  },
  load: ({ thread, seq }, signal) =>
    get("context", { thread, seq: seq ?? 0, max_tokens: place.budget, query: place.question }, signal),
  show(body, data) {
    body.replaceChildren(
      el("h2", { text: "What a model would see next" }),
      summed(data),
      spentBar(data),
      leftOut(data),
      stood(data),
      place.question ? recalled(data) : "",
      data.messages.length
        ? section("Messages", data.earlier > 0 && el("p", { class: "dim", text: `the last ${number(data.messages.length)}; ${number(data.earlier)} come before them` }), el("div", { class: "cards" }, ...data.messages.map(messageCard)))
        : empty("Nothing: the context is empty here"),
    );
  },
};

// How a context was filled, within another tab: what came in and what was cut.
export function contextParts(data) {
  return [summed(data), spentBar(data), leftOut(data), ...(data.messages.length ? [messages(data)] : [])];
}

const messages = (data) =>
  el(
    "details",
    {},
    el("summary", { text: counted(data.messages.length + data.earlier, "message") }),
    el("div", { class: "cards" }, ...data.messages.map(messageCard)),
  );

function summed(data) {
  const usages = data.spent?.usages;
  const estimated = usages ? `estimated, corrected by ${counted(usages, "report")}` : "estimated";
  const counting = data.tokens_exact ? `counted by ${data.tokenizer}` : estimated;
  return el("p", {
    class: "sum",
    text: `${counted(data.messages.length + data.earlier, "message")}, ${counted(data.tokens, "token")}${data.max_tokens ? ` of ${number(data.max_tokens)}` : ""} (${oneLine(counting, 60)})`,
  });
}

function spentBar({ spent, tokens, max_tokens: most }) {
  const whole = Math.max(
    1,
    most ?? 0,
    tokens,
    PARTS.reduce((sum, [name]) => sum + (spent[name] ?? 0), 0),
  );
  const parts = PARTS.filter(([name]) => spent[name]);
  const bar = el("div", {
    class: "spent",
    role: "img",
    "aria-label": `Spent: ${parts.map(([name]) => `${name} ${number(spent[name])}`).join(", ") || "nothing"}`,
  });
  for (const [name] of parts) {
    const piece = el("span", { class: name });
    setStyle(piece, { width: `${(100 * spent[name]) / whole}%` });
    bar.append(piece);
  }
  const legend = el(
    "p",
    { class: "legend" },
    ...parts.map(([name, what]) =>
      el("span", { title: what }, el("i", { class: name }), `${name} ${number(spent[name])}`),
    ),
  );
  if (most) legend.append(el("span", { class: "dim", text: `${number(Math.max(0, most - tokens))} free` }));
  return el("div", {}, bar, legend);
}

function leftOut({ included, excluded, shortened }) {
  const said = (ids, what) =>
    ids.length > 0 &&
    el(
      "details",
      {},
      el("summary", { text: `${counted(ids.length, "chunk")} ${what}` }),
      el("p", {}, ...ids.slice(0, 300).flatMap((id) => [chunkLink(id), " "]), ids.length > 300 ? "…" : ""),
    );
  return el(
    "div",
    {},
    said(included ?? [], "in it"),
    said(excluded ?? [], "left out: no room"),
    said(shortened ?? [], "shortened to fit"),
  );
}

// What the question brought back, in the order in which it was said, with why each was chosen.
function recalled({ recalled: hits, recall_failure: failed }) {
  return section(
    `Recalled (${number(hits.length)})`,
    failed && failure({ title: "Without a model", message: failed }),
    hits.length ? el("div", { class: "cards" }, ...hits.map((one) => hit(one))) : empty("Nothing beside what the context holds anyway"),
  );
}

// A passage that memory found; `fate` and `parts` say more about it where they are known.
export function hit({ seq, kind, role, speaker, at, score, why, text }, fate = "", parts = "") {
  return el(
    "article",
    { class: "card hit" },
    el(
      "header",
      {},
      seqLink(seq),
      el("span", { class: "badge", text: oneLine(kind, 30) }),
      el("span", { class: "dim grow", text: `${oneLine(speaker || role, 60)} · ${day(at)}` }),
      fate,
      score > 0 && el("span", { class: "tokens", text: score.toFixed(2) }),
    ),
    prose(text, { most: 1200 }),
    el("footer", { class: "dim" }, `why: ${oneLine(why, 200)}`),
    parts,
  );
}

// A message of a context.
export function messageCard({ role, content, chars, tool_calls: calls, tokens, name }) {
  const text = typeof content === "string" ? content : content ? JSON.stringify(content, null, 1) : "";
  return el(
    "article",
    { class: `card message ${["user", "assistant", "system", "tool"].includes(role) ? role : "other"}` },
    el(
      "header",
      {},
      el("strong", { text: oneLine(role, 30) }),
      name && el("span", { class: "dim", text: oneLine(name, 40) }),
      el("span", { class: "grow" }),
      el("span", { class: "tokens", text: `${number(tokens)} tok` }),
    ),
    text && prose(text, { most: 3000, chars }),
    ...(calls ?? []).map((call) => prose(callText(call.function ?? call), { mono: true, most: 3000 })),
  );
}
