// The store at a glance: what it holds, how much each day brought, what compactions saved, what failed, what models took.

import { counted, el, empty, money, number, oneLine, section, setStyle, size, table } from "./dom.js";
import { place } from "./place.js";
import { get, isAbort } from "./server.js";
import { models } from "./tab_time.js";

const DAYS_LEAST = 14;

let most = ""; // events whose failures and models are counted; empty: as many as the server thinks

export const storeTab = {
  id: "store",
  title: "Store",
  stays: true,
  always: true, // also where no thread is open
  key: () => `${most}`,
  load: async (_look, signal) => {
    const [told, totals] = await Promise.all([get("glance", { most }, signal), get("store", {}, signal)]);
    return { told, totals, signal };
  },
  show(body, { told, totals, signal }, { again }) {
    body.replaceChildren(...drawn(told, totals, again));
    if (!told.is_done) goOn(body, totals, signal, again);
  },
};

// What is counted in logs comes piece by piece; what is there already is shown meanwhile.
async function goOn(body, totals, signal, again) {
  try {
    let told;
    do {
      told = await get("glance", { most }, signal);
      if (signal.aborted || !body.isConnected) return;
      body.replaceChildren(...drawn(told, totals, again));
    } while (!told.is_done && !document.hidden && place.tab === "store");
  } catch (error) {
    if (!isAbort(error)) body.append(empty(error.message));
  }
}

function drawn(told, totals, again) {
  return [
    el("h2", { text: "The store" }),
    tiles(told, totals),
    told.damaged.length ? el("p", { class: "failure slim", text: `${counted(told.damaged.length, "thread")} damaged: ${told.damaged.map((id) => oneLine(id, 60)).slice(0, 5).join(", ")}` }) : "",
    days(told),
    section("Compactions", saved(told.compactions)),
    section("Largest threads", threadsTable("Largest threads", told.largest, ["events", "tokens"], (one) => [number(one.events), number(one.tokens)])),
    failures(told),
    models(told.models, "Models, in all"),
    told.spending.length ? section("By thread", threadsTable("Models by thread", told.spending, ["input", "output", "cost"], (one) => [number(one.input_tokens), number(one.output_tokens), money(one.cost_usd)])) : "",
    scope(told, again),
  ];
}

function tiles({ threads }, totals) {
  const tile = (value, what) => el("div", { class: "tile" }, el("strong", { text: value }), el("span", { class: "dim", text: what }));
  return el("div", { class: "tiles" }, tile(number(threads), "threads"), tile(number(totals.events), "events"), tile(number(totals.tokens), "tokens in states"), tile(size(totals.bytes || totals.payload_bytes), "stored"));
}

function days({ days: counts, days_of: of, threads }) {
  const all = Object.entries(counts);
  while (all.length && all.length < DAYS_LEAST) all.unshift([new Date(Date.parse(all[0][0]) - 86_400_000).toISOString().slice(0, 10), 0]);
  const highest = Math.max(1, ...all.map(([, count]) => count));
  const bars = all.map(([day, count]) => {
    const bar = el("i", {});
    setStyle(bar, { height: `${count ? Math.max(3, (100 * count) / highest) : 0}%` });
    return el("span", { class: "day", title: `${day}: ${counted(count, "event")}` }, bar);
  });
  const said = `Events a day: ${number(all.at(-1)?.[1] ?? 0)} today, ${number(highest)} on the busiest of ${counted(all.length, "day")}`;
  return section(
    "Events a day",
    el("div", { class: "days", role: "img", "aria-label": said }, ...bars),
    el("p", { class: "dim small ends" }, el("span", { text: all[0]?.[0] ?? "" }), el("span", { text: of < threads ? `the ${number(of)} threads used last` : "" }), el("span", { text: all.length > 1 ? all.at(-1)[0] : "" })),
  );
}

function saved({ completed, failed, tokens_before: before, tokens_after: after }) {
  if (!completed && !failed) return empty("Nothing was compacted");
  const share = before ? Math.round((100 * (before - after)) / before) : 0;
  const bar = (kind, tokens) => {
    const piece = el("i", { class: kind });
    setStyle(piece, { width: `${(100 * tokens) / Math.max(1, before)}%` });
    return el("div", { class: "saved-bar" }, el("span", { class: "dim", text: kind }), el("span", { class: "saved-room" }, piece), el("span", { class: "num", text: `${number(tokens)} tok` }));
  };
  return el("div", {}, el("p", { class: "sum", text: `${counted(completed, "compaction")}${failed ? `, ${number(failed)} failed` : ""}: ${share} % of their tokens saved` }), bar("before", before), bar("after", after));
}

function failures({ failures: found, failing }) {
  if (!found.length) return section("Failures", empty("No failure is recorded"));
  const said = found.map(({ type, count }) => `${number(count)} ${oneLine(type, 40).replaceAll("_", " ")}`).join(", ");
  return section("Failures", el("p", { class: "sum", text: said }), threadsTable("Failures by thread", failing, ["events", "failures"], (one) => [number(one.events), number(one.failures)]));
}

function threadsTable(label, rows, heads, cells) {
  const name = (one) =>
    el("button", { type: "button", class: "link said", text: oneLine(one.id, 80), dir: "ltr", onclick: () => place.go({ thread: one.id, seq: null, chunk: "", tab: one.kind === "conversation" ? "conversation" : "event" }) });
  return table(label, ["thread", ...heads], rows.map((one) => [name(one), ...cells(one)]), 1);
}

function scope({ counted: done, events, is_done: isDone }, again) {
  const said = `Compactions, failures and models: of ${number(done)} of ${counted(events, "event")}${isDone ? "" : ", counting on…"}`;
  const all = isDone && done < events && el("button", { type: "button", text: "Count all", onclick: () => ((most = String(events)), again()) });
  return el("p", { class: "dim small" }, said, " ", all);
}
