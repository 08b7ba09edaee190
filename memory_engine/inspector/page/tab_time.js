// How long things took and what they cost: the exchange of the chosen event as a waterfall, all exchanges, models, tools.

import { clock, counted, day, el, empty, lasting, money, number, oneLine, section, setStyle, table } from "./dom.js";
import { place } from "./place.js";
import { get } from "./server.js";

const WAITS = [
  ["model", "model_us", "waiting for a model"],
  ["tool", "tool_us", "waiting for a tool"],
  ["other", "other_us", "anything else"],
];
const KINDS = { user: "user", model: "assistant", tool: "tool", compaction: "compaction", memory: "memory" };

let page = null; // of the exchanges: null is the last; {thread, offset}

export const timeTab = {
  id: "time",
  title: "Time & cost",
  stays: true,
  key: ({ thread, head, seq }) => `${head}|${seq}|${page?.thread === thread ? page.offset : ""}`,
  async load({ thread, seq }, signal) {
    const offset = page?.thread === thread ? page.offset : null;
    let told;
    do told = await get("time", { thread, offset }, signal);
    while (told.upto < told.head);
    return { told, fall: seq ? await get("waterfall", { thread, seq }, signal) : null };
  },
  show(body, { told, fall }, { thread, again }) {
    if (!told.head) return body.replaceChildren(empty("This thread has no event yet"));
    body.replaceChildren(
      el("h2", { text: "Time and cost" }),
      el("p", { class: "sum", text: spanned(told) }),
      waits(told.busy_us),
      fall?.exchange ? waterfall(fall) : "",
      exchanges(told, thread, again),
      models(told.models),
      tools(told.tools),
    );
  },
};

function spanned({ head, total, begun_us: begun, ended_us: ended, occurred }) {
  const said = occurred ? "" : "; times are those of recording";
  return `${counted(head, "event")} in ${counted(total, "exchange")}, ${lasting(ended - begun)} from first to last${said}`;
}

function waits(busy) {
  const whole = Math.max(1, ...[WAITS.reduce((sum, [, name]) => sum + busy[name], 0)]);
  const parts = WAITS.filter(([, name]) => busy[name]);
  return el(
    "div",
    {},
    stacked(busy, whole, "spent waits"),
    el(
      "p",
      { class: "legend" },
      ...parts.map(([kind, name, what]) =>
        el("span", {}, el("i", { class: kind }), `${what} ${lasting(busy[name])}`, el("span", { class: "dim", text: ` ${Math.round((100 * busy[name]) / whole)} %` })),
      ),
    ),
  );
}

function stacked(times, whole, kind) {
  const parts = WAITS.filter(([, name]) => times[name]);
  const said = parts.map(([, name, what]) => `${what} ${lasting(times[name])}`).join(", ");
  const bar = el("div", { class: kind, role: "img", "aria-label": said || "no time" });
  for (const [part, name] of parts) {
    const piece = el("span", { class: part });
    setStyle(piece, { width: `${(100 * times[name]) / whole}%` });
    bar.append(piece);
  }
  return bar;
}

// ---- one exchange

function waterfall({ exchange, bars, cut }) {
  const whole = Math.max(1, exchange.ended_us - exchange.begun_us);
  const rows = bars.map((bar) => row(bar, whole));
  return section(
    `Exchange ${number(exchange.number)} of ${number(exchange.of)}`,
    el("p", { class: "sum", text: `${day(exchange.at).slice(0, 10)} ${clock(exchange.at)} UTC, ${lasting(whole)}: ${counted(exchange.calls, "model call")}, ${counted(exchange.tools, "tool call")}${exchange.failures ? `, ${number(exchange.failures)} failed` : ""}` }),
    el("div", { class: "waterfall", role: "group", "aria-label": "Waterfall" }, whole > 1 && scale(whole), ...rows),
    cut > 0 && el("p", { class: "dim", text: `and ${counted(cut, "event")} more` }),
  );
}

function scale(whole) {
  const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => {
    const mark = el("span", { text: lasting(whole * share) });
    setStyle(mark, { left: `${100 * share}%` });
    return mark;
  });
  return el("div", { class: "scale", "aria-hidden": "true" }, el("span", {}), el("span", { class: "ticks" }, ...marks), el("span", {}));
}

function row(bar, whole) {
  const took = bar.end_us - bar.begin_us;
  const kind = KINDS[bar.kind] ?? "other";
  const piece = el("span", { class: `piece ${kind}${bar.failed ? " failed" : ""}${bar.open ? " open" : ""}` });
  setStyle(piece, { left: `${(100 * bar.begin_us) / whole}%`, width: `${(100 * took) / whole}%` });
  const said = bar.open ? "no result" : `${bar.failed ? "failed, " : ""}${took ? lasting(took) : ""}`;
  return el(
    "button",
    {
      type: "button",
      class: "fall-row",
      "aria-current": place.seq === bar.last ? "true" : null,
      title: `event ${number(bar.seq)}${bar.last > bar.seq ? ` to ${number(bar.last)}` : ""}, ${number(bar.tokens)} tokens, from ${lasting(bar.begin_us)} on`,
      onclick: () => place.go({ seq: bar.last }),
    },
    el("span", { class: "fall-name" }, el("b", { class: kind, text: bar.kind }), el("span", { text: bar.label === bar.kind || bar.label === "user_message" ? "" : oneLine(bar.label, 80), dir: "auto" })),
    el("span", { class: "fall-bar" }, piece),
    el("span", { class: `num${bar.failed ? " failed" : ""}`, text: said }),
  );
}

// ---- all of them

function exchanges({ exchanges: all, offset, limit, total }, thread, again) {
  const longest = Math.max(1, ...all.map(({ begun_us: begun, ended_us: ended }) => ended - begun));
  const turn = (to, text) =>
    el("button", { type: "button", text, onclick: () => ((page = { thread, offset: to }), again()) });
  const rows = [...all].reverse().map((one, n) =>
    el(
      "tr",
      { "aria-current": place.seq >= one.first && place.seq <= one.last ? "true" : null },
      el("td", { class: "num dim", text: number(offset + all.length - n) }),
      el(
        "td",
        {},
        el("button", { type: "button", class: "link said", text: oneLine(one.said, 80) || `event ${number(one.first)}`, dir: "auto", onclick: () => place.go({ seq: one.last }) }),
      ),
      el("td", { class: "bar-cell" }, stacked(one, longest, "spent waits small")),
      el("td", { class: "num", text: lasting(one.ended_us - one.begun_us) }),
      el("td", { class: "num dim", text: counted(one.calls, "call") }, one.failures > 0 && el("span", { class: "failed", text: `, ${number(one.failures)} failed` })),
      el("td", { class: "num dim", text: one.input_tokens + one.output_tokens ? `${number(one.input_tokens + one.output_tokens)} tok` : "" }),
    ),
  );
  const pager = el("p", { class: "pager" });
  if (offset > 0) pager.append(turn(Math.max(0, offset - limit), "Earlier"));
  if (offset + all.length < total) pager.append(turn(offset + limit, "Later"));
  return section(
    `Exchanges (${number(total)})`,
    el("div", { class: "wide" }, el("table", { class: "rows-table", "aria-label": "Exchanges" }, el("tbody", {}, ...rows))),
    pager.childElementCount ? pager : "",
  );
}

export function models(used, title = "Models") {
  if (!used.length) return section(title, empty("No model usage is recorded"));
  const sum = (name) => used.reduce((all, one) => all + one[name], 0);
  const cells = (one) => [number(one.calls), number(one.input_tokens), one.cached_tokens ? number(one.cached_tokens) : "–", number(one.output_tokens), money(one.cost_usd)];
  const rows = used.map((one) => [oneLine(one.model, 60) || "not named", oneLine(one.purpose, 40).replaceAll("_", " "), ...cells(one)]);
  if (used.length > 1)
    rows.push(["all", "", ...cells(Object.fromEntries(["calls", "input_tokens", "cached_tokens", "output_tokens", "cost_usd"].map((name) => [name, sum(name)])))]);
  return section(title, table(title, ["model", "for", "calls", "input", "cached", "output", "cost"], rows, 2));
}

function tools(used) {
  if (!used.length) return "";
  const rows = used.map((one) => [oneLine(one.name, 60), number(one.calls), one.failed ? number(one.failed) : "–", lasting(one.median_us), lasting(one.longest_us), lasting(one.total_us)]);
  return section("Tools", table("Tools", ["tool", "calls", "failed", "middle", "longest", "all"], rows, 1));
}
