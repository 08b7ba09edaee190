// What a provider's prompt cache kept from call to call up to the chosen seq, and which events broke it.

import { counted, el, empty, number, oneLine, section, svg, visible } from "./dom.js";
import { place } from "./place.js";
import { get } from "./server.js";

const HIGH = 150;
let budget = "";
let whole = ""; // the thread of which all calls are asked for, not only the last

export const cacheTab = {
  id: "cache",
  title: "Cache",
  key: ({ thread, seq }) => `${seq ?? 0}|${budget}|${whole === thread}`,
  controls(bar, again) {
    const field = el("input", { type: "number", id: "ledger-budget", min: 1, step: 100, placeholder: "no limit" });
    field.addEventListener("change", () => {
      budget = Number(field.value) >= 1 ? String(Math.floor(Number(field.value))) : "";
      again();
    });
    this.all = (thread) => {
      whole = thread;
      again();
    };
    bar.append(el("label", { for: "ledger-budget", text: "Budget of the calls in tokens" }), field);
  },
  load: ({ thread, seq }, signal) =>
    get("ledger", { thread, after: whole === thread ? "0" : "", upto: seq ?? 0, max_tokens: budget }, signal),
  show(body, ledger, { thread }) {
    const lost = lostByCall(ledger);
    const { calls, breaks } = ledger;
    body.replaceChildren(el("h2", { text: "What the prompt cache kept" }));
    if (!calls.length) {
      body.append(empty("No model call up to here"));
      return;
    }
    const sum = (of) => calls.reduce((all, call) => all + of(call), 0);
    const all = Math.max(
      1,
      sum((call) => call.tokens),
    );
    const kept = sum((call) => call.kept_tokens);
    body.append(
      el("p", {
        class: "sum",
        text: `${which(ledger)}, ${counted(
          sum((call) => call.tokens),
          "token",
        )} sent: ${number(kept)} kept (${Math.round((100 * kept) / all)} %), ${number(sum((call) => call.fresh_tokens))} fresh`,
      }),
      ledger.after > 0 && whole !== thread
        ? el("p", {}, el("button", { type: "button", text: "Look at all calls", onclick: () => this.all(thread) }))
        : "",
      chart(calls, lost),
      el(
        "p",
        { class: "legend" },
        ...["kept", "fresh", "lost"].map((name) =>
          el(
            "span",
            {},
            el("i", { class: name }),
            {
              kept: "kept: as in the call before",
              fresh: "fresh: new in this call",
              lost: "lost: was kept until an event broke it",
            }[name],
          ),
        ),
      ),
      section(
        `Breaks (${number(breaks.length)})`,
        breaks.length ? el("div", { class: "wide" }, table(breaks)) : empty("No event broke the cache: every call began as the one before"),
      ),
    );
  },
};

// How many calls these are, and of how many: a page looks at the last ones of a long log.
function which({ after, calls, all_calls: all }) {
  if (after === 0 || calls.length === all) return counted(calls.length, "call");
  return `The last ${number(calls.length)} of ${all === null ? "more" : number(all)} calls`;
}

function lostByCall({ calls, breaks }) {
  const lost = new Map();
  for (const { seq, lost_tokens: tokens } of breaks) {
    const call = calls.find((made) => made.seq >= seq);
    if (call) lost.set(call.seq, (lost.get(call.seq) ?? 0) + tokens);
  }
  return lost;
}

function chart(calls, lost) {
  const wide = Math.max(3, Math.min(18, Math.floor(560 / calls.length)));
  const gap = wide > 5 ? 2 : 1;
  const most = Math.max(1, ...calls.map((call) => call.tokens + (lost.get(call.seq) ?? 0)));
  const high = (tokens) => (tokens * HIGH) / most;
  const picture = svg("svg", {
    width: calls.length * wide + 2,
    height: HIGH + 4,
    role: "img",
    "aria-label": `${counted(calls.length, "call")}, tokens kept, fresh and lost in each`,
  });
  calls.forEach((call, n) => {
    const gone = lost.get(call.seq) ?? 0;
    const group = svg("g", {
      class: `call${call.seq === place.seq ? " chosen" : ""}`,
      onclick: () => place.go({ seq: call.seq, tab: "event" }),
    });
    let y = HIGH + 2;
    group.append(svg("rect", { x: n * wide, y: 0, width: wide, height: HIGH + 4, class: "hit" }));
    for (const [kind, tokens] of [
      ["kept", call.kept_tokens],
      ["fresh", call.fresh_tokens],
      ["lost", gone],
    ]) {
      y -= high(tokens);
      if (tokens)
        group.append(svg("rect", { x: n * wide + gap / 2, y, width: wide - gap, height: high(tokens), class: kind }));
    }
    group.append(
      svg("title", {
        text: `event ${number(call.seq)}: ${number(call.tokens)} tokens, ${number(call.kept_tokens)} kept, ${number(call.fresh_tokens)} fresh${gone ? `, ${number(gone)} lost` : ""}`,
      }),
    );
    picture.append(group);
  });
  const frame = el("div", { class: "chart" }, picture);
  queueMicrotask(() => (frame.scrollLeft = frame.scrollWidth));
  return frame;
}

function table(breaks) {
  const rows = [...breaks].reverse().map((broke) => {
    return el(
      "tr",
      {},
      el(
        "td",
        {},
        el("button", {
          type: "button",
          class: "link",
          text: `event ${number(broke.seq)}`,
          onclick: () => place.go({ seq: broke.seq, tab: "event" }),
        }),
      ),
      el("td", {}, el("span", { class: "badge", text: oneLine(broke.event_type, 40) })),
      el("td", { class: "num", text: number(broke.lost_tokens) }),
      el("td", { class: "num dim", text: `message ${number(broke.message)}, byte ${number(broke.byte)}` }),
      el("td", { text: visible(broke.why) }),
    );
  });
  const head = ["by", "type", "lost", "from", "why"].map((name) => el("th", { scope: "col", text: name }));
  return el(
    "table",
    { class: "breaks", "aria-label": "Breaks of the cache" },
    el("thead", {}, el("tr", {}, ...head)),
    el("tbody", {}, ...rows),
  );
}
