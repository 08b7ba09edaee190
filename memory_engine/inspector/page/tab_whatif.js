// What if: the log run again in memory under a change, and the contexts side by side. What may be written says so.

import { counted, el, empty, failure, number, oneLine, say, section, table, visible } from "./dom.js";
import { messageCard } from "./tab_context.js";
import { place } from "./place.js";
import { get, isAbort, post } from "./server.js";

const FIELDS = [
  ["threshold", "chunks at least"],
  ["tokens_min", "tokens at least"],
  ["soft_tokens", "tokens of any chunks"],
  ["hard_tokens", "tokens before a call"],
  ["keep_recent", "newest chunks kept"],
  ["ratio", "share of the tokens"],
];
const COUNTS = ["kept", "renumbered", "replaced", "skipped", "refused", "left_out", "inserted", "added"];

let shown = null; // the Trials in view

export const whatIfTab = {
  id: "whatif",
  title: "What if",
  stays: true,
  key: () => "form",
  load: ({ thread }, signal) => get("options", { thread }, signal),
  follows: (look) => shown?.follow(look),
  show(body, options, look) {
    shown?.control?.abort();
    shown = null;
    if (!options.head) return body.replaceChildren(empty("This thread has no event yet"));
    shown = new Trials(body, options, look);
  },
};

class Trials {
  constructor(body, options, look) {
    Object.assign(this, { body, options, look, control: null, fields: new Map(), seq: look.seq });
    this.run = el("button", { type: "button", class: "primary", text: "Run again in memory", onclick: () => this.try() });
    this.stop = el("button", { type: "button", text: "Stop", hidden: true, onclick: () => this.control?.abort() });
    this.result = el("div", { class: "trial", "aria-live": "polite" });
    body.replaceChildren(
      el("h2", { text: "What if" }),
      el("p", { class: "sum", text: writes(options.may_write) }),
      el("form", { class: "levers", onsubmit: (event) => (event.preventDefault(), this.try()) }, this.event(), this.policy(), this.compactor(), this.reducers(), this.undo(), this.reach(), el("div", { class: "go" }, this.run, this.stop)),
      this.result,
    );
    this.follow(look);
  }

  // ---- what is changed

  event() {
    this.what = select("whatif-event", [["", "stays as it is"], ["skip", "had not happened"], ["replace", "had been another"], ["insert", "had been followed by one more"]]);
    this.text = el("textarea", { id: "whatif-json", rows: 6, spellcheck: "false", "aria-label": "The event as JSON", dir: "ltr" });
    this.text.hidden = true;
    this.name = el("label", { for: "whatif-event" });
    this.what.addEventListener("change", () => this.offer());
    return fields("One event", el("div", { class: "pair-line" }, this.name, this.what), this.text);
  }

  async offer() {
    const wanted = this.what.value;
    this.text.hidden = !["replace", "insert"].includes(wanted);
    if (this.text.hidden) return;
    try {
      const event = await get("event", { thread: this.look.thread, seq: this.seq });
      const made = wanted === "insert" ? { type: "user_message", payload: { content: "…" } } : { type: event.type, version: event.version, payload: event.payload };
      this.text.value = JSON.stringify(made, null, 2);
    } catch (error) {
      say(error.message);
    }
  }

  policy() {
    const inputs = FIELDS.map(([name, what]) => {
      const input = el("input", { type: "number", id: `whatif-${name}`, min: 0, step: name === "ratio" ? 0.05 : 1, placeholder: String(this.options.policy[name]) });
      this.fields.set(name, input);
      return el("div", { class: "field" }, el("label", { for: `whatif-${name}`, text: what }), input);
    });
    this.never = el("input", { type: "checkbox", id: "whatif-never" });
    return fields("When it is compacted", el("div", { class: "grid" }, ...inputs), el("label", { class: "tick" }, this.never, "never"));
  }

  compactor() {
    const { compactors } = this.options;
    this.by = select("whatif-compactor", [["", "as recorded"], ...compactors.map(({ name, calls_model: calls }) => [name, calls ? `${oneLine(name, 40)} (calls a model: not from here)` : oneLine(name, 40), calls])]);
    return fields("By whom", el("div", { class: "pair-line" }, el("label", { for: "whatif-compactor", text: "Compactor" }), this.by));
  }

  reducers() {
    this.runs = this.options.reducers.map(({ name, type }) => [name, el("input", { type: "checkbox", checked: true }), type]);
    const said = el("span", { class: "dim" });
    const count = () => (said.textContent = `${this.runs.filter(([, box]) => box.checked).length} of ${this.runs.length} run`);
    for (const [, box] of this.runs) box.addEventListener("change", count);
    count();
    return el(
      "details",
      { class: "lever" },
      el("summary", {}, "Reducers ", said),
      ...this.runs.map(([name, box, type]) => el("label", { class: "tick" }, box, el("code", { text: oneLine(name, 80) }), el("span", { class: "dim", text: oneLine(type, 60) }))),
    );
  }

  undo() {
    this.undos = el("div", { class: "lever-room" });
    this.offerUndo();
    return this.undos;
  }

  offerUndo() {
    const chosen = this.undone?.value ?? "";
    const stand = this.options.compactions.filter(({ status }) => status === "live").reverse();
    this.undone = null;
    this.undos.replaceChildren();
    if (!stand.length) return;
    const said = ({ seq, covered, dropped, tokens_before: before, tokens_after: after }) => `event ${number(seq)}: ${counted(covered.length + dropped.length, "chunk")}, ${number(before)} → ${number(after)} tokens`;
    this.undone = select("whatif-undo", [["", "none"], ...stand.map((one) => [one.compaction_id, said(one)])]);
    this.undone.addEventListener("change", () => (this.upto.disabled = Boolean(this.undone.value)));
    if (stand.some((one) => one.compaction_id === chosen)) this.undone.value = chosen;
    this.undos.append(fields("Undo a compaction", el("div", { class: "pair-line" }, el("label", { for: "whatif-undo", text: "Compaction" }), this.undone)));
  }

  reach() {
    const { head } = this.options;
    this.upto = el("input", { type: "number", id: "whatif-upto", min: 1, max: head, placeholder: String(head) });
    this.budget = el("input", { type: "number", id: "whatif-budget", min: 1, placeholder: "no limit" });
    return fields(
      "How far",
      el("div", { class: "grid" }, el("div", { class: "field" }, el("label", { for: "whatif-upto", text: "up to event" }), this.upto), el("div", { class: "field" }, el("label", { for: "whatif-budget", text: "budget in tokens" }), this.budget)),
    );
  }

  // The chosen event is the one that is changed.
  follow(look) {
    this.seq = look.seq || 1;
    this.look = look;
    if (look.head > this.options.head) this.grown(look);
    const named = `Event ${number(this.seq)}`;
    if (this.name.textContent === named) return;
    this.name.textContent = named;
    if (this.what.value) this.offer();
  }

  // The log goes on while one tries: its end and its compactions are others now.
  async grown({ thread, head }) {
    this.options.head = head;
    this.upto.placeholder = String(head);
    try {
      Object.assign(this.options, await get("options", { thread }));
      this.offerUndo();
    } catch {
      // what was offered stays; the server says what is wrong with it
    }
  }

  change() {
    const policy = this.never.checked ? { enabled: false } : {};
    for (const [name, input] of this.fields) if (input.value !== "") policy[name] = Number(input.value);
    if ("threshold" in policy && !("tokens_min" in policy)) policy.tokens_min = 0;
    const change = { policy, compactor: this.by.value, without: this.runs.filter(([, box]) => !box.checked).map(([name]) => name) };
    const event = this.text.hidden ? null : JSON.parse(this.text.value);
    if (this.what.value) change.edits = [{ do: this.what.value, seq: this.seq, event }];
    if (this.undone?.value) change.undo = this.undone.value;
    return change;
  }

  // ---- and what comes of it

  async try() {
    let change;
    try {
      change = this.change();
    } catch (error) {
      this.result.replaceChildren(failure({ title: "The event is not JSON", message: error.message }));
      return;
    }
    const upto = this.undone?.value || !this.upto.value ? this.options.head : Number(this.upto.value);
    const asked = { thread: this.look.thread, upto, change: JSON.stringify(change), max_tokens: this.budget.value };
    this.control?.abort();
    this.control = new AbortController();
    this.busy(true);
    try {
      const trial = await get("what_if", asked, this.control.signal);
      this.result.replaceChildren(...this.outcome(trial, { ...asked, change }));
      this.result.scrollIntoView({ block: "start" });
    } catch (error) {
      this.result.replaceChildren(isAbort(error) ? empty("Stopped") : failure(error));
    }
    this.busy(false);
  }

  busy(on) {
    this.run.disabled = on;
    this.stop.hidden = !on;
    this.result.classList.toggle("stale", on);
  }

  outcome(trial, asked) {
    const { original, fork } = trial.totals;
    const folds = trial.compactions;
    const context = trial.contexts?.tokens ?? ["–", "–"];
    const rows = [
      ["last context, tokens", ...context],
      ["model calls since then", original.calls, fork.calls],
      ["tokens sent", original.tokens, fork.tokens],
      ["kept by a prompt cache", original.kept_tokens, fork.kept_tokens],
      ["sent fresh", original.fresh_tokens, fork.fresh_tokens],
      ["compactions", folds.original.completed, folds.fork.completed],
    ]
      .filter(([, one, other], n) => n === 0 || one || other)
      .map(([what, one, other]) => [what, number(one), number(other), share(one, other)]);
    const counts = COUNTS.filter((name) => trial.events[name]).map((name) => `${number(trial.events[name])} ${name.replace("_", " ")}`);
    return [
      section("Result", table("Result", [`after event ${number(trial.shared)}`, "as it was", "what if", ""], rows, 1)),
      el("p", { class: "dim", text: `${number(trial.shared)} events are shared${counts.length ? `; then ${counts.join(", ")}` : ""}.` }),
      ...trial.refused.slice(0, 20).map((one) => el("p", { class: "failure slim", text: `Event ${number(one.seq)} (${oneLine(one.event_type, 40)}) no longer fits: ${visible(one.why)}` })),
      this.keeps(asked),
      trial.contexts ? sides(trial) : failure({ title: "No context", message: trial.why_none }),
    ];
  }

  keeps(asked) {
    const undoes = asked.change.undo && !asked.change.edits;
    if (!this.options.may_write)
      return el("p", { class: "dim", text: undoes ? "Started with --write, this page can undo it." : "Started with --write, this page can keep this as a fork." });
    const button = el("button", { type: "button", text: undoes ? "Undo it in the log" : "Keep it as a fork" });
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        if (undoes) await this.undoIt(asked);
        else await this.keepIt(asked);
      } catch (error) {
        button.after(failure(error));
      }
      button.disabled = false;
    });
    return el("p", {}, button, el("span", { class: "dim", text: ` writes to ${undoes ? "this thread's log" : "the store; this thread stays as it is"}` }));
  }

  async undoIt({ thread, change }) {
    const { seq } = await post("undo", { thread, compaction: change.undo });
    say(`Undone by event ${number(seq)}`);
    place.go({ seq, tab: "event" });
  }

  async keepIt({ thread, upto, change, max_tokens: budget }) {
    const { fork } = await post("keep", { thread, upto, change, max_tokens: budget ? Number(budget) : null });
    say("Kept as a fork");
    place.go({ thread: fork, seq: null, chunk: "", tab: "conversation" });
  }
}

const writes = (may) => (may ? "The log is run again in memory. Nothing is written until you press a button that says so." : "The log is run again in memory. This page only looks: nothing is written to the store.");

const share = (one, other) => (one === other ? "the same" : Number(one) ? `${other >= one ? "+" : "−"}${Math.round((100 * Math.abs(other - one)) / one)} %` : "");

const fields = (title, ...children) => el("fieldset", {}, el("legend", { text: title }), ...children);

function select(id, options) {
  return el("select", { id }, ...options.map(([value, text, off]) => el("option", { value, text, disabled: off })));
}

function sides({ contexts, pairs, cut }) {
  const head = (name, n) => el("h4", { text: `${name}: ${counted(contexts.messages[n], "message")}, ${counted(contexts.tokens[n], "token")}` });
  const cell = (message) => (message ? messageCard(message) : el("div", { class: "card none" }));
  const rows = pairs.flatMap((pair) => {
    if (pair.alike) return [el("p", { class: "alike dim", text: `${counted(pair.alike, "message")} alike` })];
    if (pair.same) return [el("div", { class: "alike" }, messageCard(pair.original))];
    return [cell(pair.original), cell(pair.fork)];
  });
  return section(
    "The next context, side by side",
    el("div", { class: "sides", role: "group", "aria-label": "Contexts side by side" }, head("As it was", 0), head("What if", 1), ...rows),
    cut > 0 && el("p", { class: "dim", text: `and ${counted(cut, "pair")} more` }),
  );
}
