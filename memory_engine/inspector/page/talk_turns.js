// How a turn of a talk looks: a message, a thought, calls with their results, what a compaction folded.

import { chunkLink } from "./chunks.js";
import { clock, counted, el, failure, loading, moment, number, oneLine, prose, say } from "./dom.js";
import { json } from "./json_view.js";
import { image, markdown } from "./markdown.js";
import { get } from "./server.js";

const SHORT = 4000; // characters of a message that are shown until one asks for the rest
const ONE_LINE = 140;

const SPEAKERS = {
  user_message: ["user", "user"],
  parent_message: ["user", "parent agent"],
  agent_response: ["assistant", "assistant"],
  clarification: ["assistant", "assistant asks"],
  subagent_message: ["assistant", "sub-agent"],
  observation: ["tool", "observation"],
  notice: ["system", "notice of the client"],
  foreign_summary: ["system", "another tool's summary"],
  agent_action: ["tool", "calls"],
  action_result: ["tool", "result"],
  error: ["tool", "error"],
  thinking: ["assistant", "thinking"],
  system: ["system", "system"],
  compacted: ["compaction", "folded"],
};

// A turn as an element. does: {thread, seq, choose(seq, chunk), opened: Set of what is unfolded}
export function turn(lines, index, total, does) {
  const [first] = lines;
  if (!first) return el("article", { class: "turn gone dim", text: "forgotten" });
  const speaks = first.type === "agent_action" && first.parts.length ? "agent_response" : first.type;
  const [role, speaker] = SPEAKERS[speaks] ?? ["other", oneLine(first.type, 30).replaceAll("_", " ")];
  const article = el(
    "article",
    {
      class: `turn ${role} ${oneLine(first.type, 30)}`,
      "aria-posinset": index + 1,
      "aria-setsize": total,
      data: { seqs: lines.map(({ seq }) => seq).join(" ") },
    },
    head(first, lines, speaker, does),
    ...body(first, lines, does),
  );
  article.addEventListener("click", (event) => {
    if (event.target.closest("a, button, summary, pre, input, .turn") !== article) return;
    if (!String(getSelection())) does.choose(first.seq);
  });
  return article;
}

function head(line, lines, speaker, does) {
  const tokens = lines.reduce((sum, { tokens }) => sum + tokens, 0);
  const named = ["user_message", "parent_message", "subagent_message"].includes(line.type) && line.label;
  return el(
    "header",
    {},
    el("strong", { class: "speaker", text: named ? oneLine(line.label, 60) : speaker }),
    named && el("span", { class: "dim", text: speaker }),
    line.status && el("span", { class: "badge", text: oneLine(line.status, 30) }),
    el("span", { class: "grow" }),
    el("span", { class: "time", text: clock(line.at), title: moment(line.at) }),
    el("span", { class: "tokens", text: `${number(tokens)} tok` }),
    el("button", {
      type: "button",
      class: "link event-link",
      text: `event ${number(line.seq)}`,
      title: "Select this event in the log",
      onclick: () => does.choose(line.seq),
    }),
    chunkLink(line.id),
  );
}

function body(line, lines, does) {
  switch (line.type) {
    case "agent_action":
    case "action_result":
    case "error":
      return calls(lines, does);
    case "thinking":
      return [fold(does, line.id, [lead(line, "thought")], () => parts(line, does))];
    case "system":
      return line.chars > 300 ? [fold(does, line.id, [lead(line, "instructions")], () => parts(line, does))] : parts(line, does);
    case "compacted":
      return [folded(line, does)];
  }
  return [...parts(line, does), ...line.calls.map((call) => callFold(line, call, [], does))];
}

const textOf = (line) => line.parts.map((part) => part.text ?? "").join("\n");
const lead = (line, otherwise) => el("span", { class: "lead", text: oneLine(textOf(line), ONE_LINE) || otherwise, dir: "auto" });

// Something that is closed until one asks for it; what was open stays so when it comes into view again.
function fold(does, key, summary, make, props = {}) {
  const box = el("details", { class: "fold", open: does.opened.has(key), ...props }, el("summary", {}, ...summary));
  let made = false;
  const open = () => {
    if (!made) box.append(...make());
    made = true;
  };
  box.addEventListener("toggle", () => {
    if (box.open) does.opened.add(key);
    else does.opened.delete(key);
    if (box.open) open();
  });
  if (box.open) open();
  box.make = open; // for who keeps all of it
  return box;
}

// ---- messages

function parts(line, does) {
  const made = line.parts.map((part) => {
    if (part.image !== undefined)
      return part.image ? image(part.image, part.alt) : el("span", { class: "dim", text: `[image: ${oneLine(part.alt, 80)}]` });
    if (part.file !== undefined)
      return el("div", {}, el("span", { class: "badge", text: `file: ${oneLine(part.file, 80)}` }), part.text ? prose(part.text, { most: 1200 }) : "");
    return text(part, line, does);
  });
  return made;
}

function text(part, line, { thread }) {
  if (part.text.length <= SHORT && part.text.length === part.chars) return markdown(part.text);
  const box = el("div", {}, markdown(part.text.slice(0, SHORT)));
  const more = el("button", { type: "button", class: "link more", text: `Show all ${number(part.chars)} characters` });
  more.addEventListener("click", async () => {
    if (part.text.length === part.chars) return box.replaceChildren(markdown(part.text));
    try {
      const { content } = await get("chunk", { thread, id: line.id });
      const whole = typeof content === "string" ? content : (content ?? []).map((one) => one.text ?? "").join("\n");
      box.replaceChildren(prose(whole, { most: Infinity }));
    } catch (error) {
      say(error.message);
    }
  });
  box.append(more);
  return box;
}

// ---- calls

// Each call with its answers; an answer to no call of this turn stands for itself.
function calls(lines, does) {
  const answers = new Set(lines.filter(({ type }) => type !== "agent_action"));
  const made = [];
  for (const line of lines.filter(({ type }) => type === "agent_action")) {
    made.push(...parts(line, does));
    for (const call of line.calls) {
      const own = [...answers].filter(({ call_id: id }) => id === call.id);
      for (const answer of own) answers.delete(answer);
      made.push(callFold(line, call, own, does));
    }
  }
  const rest = [...answers].map((answer) => {
    const name = oneLine(answer.label || (answer.type === "error" ? "error" : "result"), 60);
    return fold(does, answer.id, [el("code", { text: name }), outcome([answer])], () => answered(answer, does));
  });
  return [...made, ...rest];
}

function callFold(line, call, answers, does) {
  const summary = [
    el("code", {}, el("b", { text: oneLine(call.name, 60) }), oneLine(`(${short(call.arguments)})`, ONE_LINE)),
    answers.length ? outcome(answers) : el("span", { class: "dim", text: "no result yet" }),
  ];
  return fold(does, `${line.id} ${call.id}`, summary, () => [
    el("p", { class: "dim small", text: "arguments" }),
    json(call.arguments, { most: 4000 }),
    ...answers.flatMap((answer) => answered(answer, does)),
  ]);
}

function outcome(answers) {
  const failed = answers.some(({ type }) => type === "error");
  const said = oneLine(answers.map(textOf).join(" "), ONE_LINE);
  return el("span", { class: failed ? "outcome failed" : "outcome", dir: "auto", text: `${failed ? "failed: " : "→ "}${said}` });
}

function answered(answer, does) {
  return [
    el(
      "p",
      { class: "dim small" },
      answer.type === "error" ? "error" : "result",
      ` · ${number(answer.tokens)} tok · `,
      el("button", { type: "button", class: "link event-link", text: `event ${number(answer.seq)}`, onclick: () => does.choose(answer.seq) }),
      " ",
      chunkLink(answer.id),
    ),
    ...answer.parts.map((part) =>
      part.image !== undefined
        ? image(part.image, part.alt)
        : prose(part.text, { most: 2000, mono: true, chars: part.chars }),
    ),
  ];
}

// Arguments as one writes them: `path: "a.py", line: 3`.
function short(text) {
  try {
    const given = JSON.parse(text);
    if (given && typeof given === "object" && !Array.isArray(given))
      return Object.entries(given)
        .map(([name, value]) => `${name}: ${JSON.stringify(value)}`)
        .join(", ");
  } catch {
    // shown as the model wrote it
  }
  return text ?? "";
}

// ---- compactions

function folded(line, does) {
  const summary = [
    el("b", { text: `${counted(line.covers, "chunk")} folded` }),
    lead(line, "nothing was kept of them"),
  ];
  return fold(does, line.id, summary, () => [
    el("p", { class: "dim small", text: "what replaces them in the context" }),
    el("div", { class: "summary-text", tabindex: 0, role: "group", "aria-label": "Summary" }, ...parts(line, does)),
    el("p", { class: "dim small", text: "the originals" }),
    originals(line, does),
  ]);
}

function originals(line, does) {
  const box = el("div", { class: "originals" }, loading("Loading the originals…"));
  const next = async (offset) => {
    try {
      const found = await get("talk", { thread: does.thread, seq: does.seq, chunk: line.id, offset, limit: 100 });
      if (!offset) box.replaceChildren();
      box.append(...found.turns.map((lines, n) => turn(lines, offset + n, found.total, does)));
      const left = found.total - offset - found.turns.length;
      if (left > 0) {
        const more = el("button", { type: "button", text: `Show more (${number(left)} left)` });
        more.addEventListener("click", () => (more.remove(), next(offset + found.turns.length)));
        box.append(more);
      }
      if (!found.total) box.append(el("p", { class: "dim", text: "none of them was said" }));
    } catch (error) {
      if (!offset) box.replaceChildren();
      const told = failure(error, () => (told.remove(), next(offset)));
      box.append(told);
    }
  };
  next(0);
  return box;
}
