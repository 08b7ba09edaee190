// Two points compared: the marked one (A) and the chosen one (B), of one thread or of a fork and its origin.

import { changes, seqLink, tokensLine, unified, viewsChanged } from "./chunks.js";
import { counted, el, empty, number, oneLine, section, size } from "./dom.js";
import { get } from "./server.js";

// The point that is marked; without one, the event before the chosen one.
const first = ({ thread, mark, seq }) => mark ?? (seq ? { thread, seq: seq - 1 } : null);

export const diffTab = {
  id: "diff",
  title: "Diff",
  key(look) {
    const a = first(look);
    return a ? `${a.thread}|${a.seq}|${look.seq}` : null;
  },
  nothing: () => "Before the first event there is nothing to compare",
  controls(bar, again) {
    this.a = el("input", { type: "number", id: "diff-a", min: 0 });
    this.b = el("input", { type: "number", id: "diff-b", min: 0 });
    this.whose = el("span", { class: "dim" });
    const swap = this.swap = el("button", { type: "button", text: "swap", title: "Swap the two points" });
    const clear = this.clear = el("button", { type: "button", text: "clear", title: "Remove the mark" });
    this.say = () => {};
    this.a.addEventListener("change", () => (this.say({ a: this.a.value }), again()));
    this.b.addEventListener("change", () => (this.say({ b: this.b.value }), again()));
    swap.addEventListener("click", () => (this.say({ swap: true }), again()));
    clear.addEventListener("click", () => (this.say({ a: "" }), again()));
    bar.append(
      el("label", { for: "diff-a", text: "A (marked)" }),
      this.a,
      this.whose,
      el("label", { for: "diff-b", text: "B (chosen)" }),
      this.b,
      swap,
      clear,
    );
  },
  follows({ thread, mark, seq, head, choose }) {
    if (document.activeElement !== this.a) this.a.value = mark ? mark.seq : "";
    if (document.activeElement !== this.b) this.b.value = seq ?? "";
    const elsewhere = mark && mark.thread !== thread;
    this.a.placeholder = seq ? String(seq - 1) : "";
    this.whose.textContent = elsewhere ? `of ${oneLine(mark.thread, 30)}` : mark ? "" : "the event before";
    this.swap.hidden = this.clear.hidden = !mark;
    const within = (text) => Math.min(head, Math.max(0, Math.floor(Number(text) || 0)));
    this.say = ({ a, b, swap }) => {
      if (swap && mark) choose({ thread: mark.thread, seq: mark.seq, mark: { thread, seq } });
      else if (a !== undefined)
        choose({
          mark:
            a === ""
              ? null
              : { thread: elsewhere ? mark.thread : thread, seq: elsewhere ? Math.floor(Number(a) || 0) : within(a) },
        });
      else if (b !== undefined && b !== "") choose({ seq: within(b) });
    };
  },
  load(look, signal) {
    const { thread, seq } = look;
    const a = first(look);
    const other = a.thread === thread ? null : thread;
    return get("diff", { thread: a.thread, a: a.seq, b: seq ?? 0, other }, signal);
  },
  show(body, diff, { thread }) {
    const { context } = diff;
    const at = ({ thread_id: id, seq }) =>
      id === thread ? seqLink(seq) : el("span", { text: `event ${number(seq)} of ${oneLine(id, 40)}` });
    const parts = changes(diff);
    const views = viewsChanged(diff.views);
    body.replaceChildren(
      el("h2", {}, "From ", at(diff.a), " to ", at(diff.b)),
      section("State", tokensLine(diff.tokens, diff.chunks), ...parts),
    );
    if (!parts.length) body.append(empty("The same chunks at both points"));
    if (context)
      body.append(
        section(
          "Context",
          contextLine(context),
          context.lines.length ? unified(context.lines) : empty("The same context at both points"),
        ),
      );
    if (views) body.append(views);
  },
};

function contextLine({ tokens, bytes, kept_bytes: kept }) {
  const share = bytes[0] ? Math.round((100 * kept) / bytes[0]) : 100;
  return el("p", {
    class: "sum",
    text: `${number(tokens[0])} → ${counted(tokens[1], "token")}; its first ${size(kept)} stayed the same (${share} % of A)`,
  });
}
