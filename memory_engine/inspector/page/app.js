// The page: threads at the left, the log of one in the middle, and what it was at a point at the right.

import { Curve } from "./curve.js";
import { byId, copied as onClipboard, counted, failure, icon, number, oneLine, say, size } from "./dom.js";
import { Keys } from "./keys.js";
import { Panel } from "./panel.js";
import { place } from "./place.js";
import { save } from "./saving.js";
import { get, Live } from "./server.js";
import { Slider } from "./slider.js";
import { splitters } from "./splitters.js";
import { briefTab } from "./tab_brief.js";
import { cacheTab } from "./tab_cache.js";
import { contextTab } from "./tab_context.js";
import { diffTab } from "./tab_diff.js";
import { eventTab } from "./tab_event.js";
import { forksTab } from "./tab_forks.js";
import { lineageTab } from "./tab_lineage.js";
import { recallTab } from "./tab_recall.js";
import { stateTab } from "./tab_state.js";
import { storeTab } from "./tab_store.js";
import { talkTab } from "./tab_talk.js";
import { timeTab } from "./tab_time.js";
import { viewsTab } from "./tab_views.js";
import { whatIfTab } from "./tab_whatif.js";
import { Threads } from "./threads.js";
import { Timeline } from "./timeline.js";

const THEMES = ["auto", "light", "dark"];
const REMEMBERED = "memory-engine.theme";
const NOT_COPIED = "The browser did not allow copying";

place.read();
const timeline = new Timeline();
const threads = new Threads((thread) => {
  byId("window").classList.remove("threads-open");
  column("middle");
  if (thread.id === place.thread) return;
  entered(thread);
  byId("events").focus({ preventScroll: true });
});
const slider = new Slider(timeline);
new Curve(timeline);
const heads = new Map(); // heads that the list of threads has told, to open a thread without asking first

const tabs = [
  talkTab,
  eventTab,
  stateTab,
  contextTab,
  viewsTab,
  lineageTab,
  diffTab,
  forksTab,
  cacheTab,
  recallTab,
  briefTab,
  timeTab,
  whatIfTab,
  storeTab,
];
const panel = new Panel(tabs, () => ({
  thread: place.thread,
  seq: place.seq,
  mark: place.mark,
  chunk: place.chunk,
  head: timeline.head,
  opening: timeline.opening,
  event: place.seq ? timeline.event(place.seq) : null,
  choose: (change) => place.go(change),
}));

function entered(thread, landing = false) {
  heads.set(thread.id, thread.events);
  place.landed = landing;
  place.fit(thread.kind);
  place.go({ thread: thread.id, seq: null, chunk: "" });
}

// ---- live

let quiet;
const store = new Live(() => {
  clearTimeout(quiet);
  quiet = setTimeout(() => {
    threads.again();
    described();
    panel.forget("store");
    if (place.tab === "store") panel.refresh();
  }, 400);
});
const log = new Live(
  ({ head, status }) => {
    panel.forget("forks");
    timeline.grown(head, status);
  },
  (lost) => byId("live").classList.toggle("lost", lost),
);

function live(on = !timeline.following) {
  timeline.following = on;
  byId("live").setAttribute("aria-pressed", on);
  if (on && place.thread) log.listen({ thread: place.thread });
  else log.stop();
  if (on) store.listen({});
  else store.stop();
}

// ---- going elsewhere

async function opened() {
  const { thread } = place;
  document.title = thread ? `${oneLine(thread, 60)} – memory engine` : "memory engine";
  byId("thread-name").textContent = thread ? oneLine(thread, 200) : "Choose a thread";
  log.stop();
  const done = timeline.open(thread, heads.get(thread) ?? null);
  heads.delete(thread);
  panel.refresh();
  await done;
  if (thread !== place.thread) return;
  panel.refresh();
  if (timeline.following && thread) log.listen({ thread });
}

place.addEventListener("change", ({ detail }) => {
  if (detail.has("thread")) opened();
  if (detail.has("tab")) panel.choose();
  else panel.refresh();
});
timeline.addEventListener("head", () => {
  if (timeline.outline) place.fit(timeline.outline.kind);
  if (["forks", "conversation"].includes(place.tab)) panel.refresh();
});
timeline.addEventListener("rows", () => place.tab === "lineage" && panel.refresh());

// ---- what the keys do

async function copied() {
  const event = place.seq ? await timeline.eventAt(place.seq).catch(() => null) : null;
  if (!event) return;
  say((await onClipboard(event.id)) ? `Copied ${oneLine(event.id, 60)}` : NOT_COPIED);
}

// A link to what is seen: it holds as long as the token does (see --token-file).
async function linked() {
  const link = `${location.href.split("#")[0]}#${place}`;
  say((await onClipboard(link)) ? "Copied a link to this view" : NOT_COPIED);
}

function kept() {
  save(panel.current.panel, panel.current.tab).catch((error) => say(error.message));
}

function marked() {
  if (!place.thread || place.seq === null) return;
  place.go({ mark: { thread: place.thread, seq: place.seq } });
  say(`Marked event ${number(place.seq)} as A: choose another, then Diff (7)`);
}

function listed() {
  column("left");
  byId("window").classList.add("threads-open");
  byId("threads-search").focus();
}

new Keys({ timeline, live: () => live(), theme: () => themed(true), mark: marked, copy: copied, link: linked, threads: listed });

// ---- the head of the page

function themed(next = false) {
  const root = document.documentElement;
  let theme = root.dataset.theme ?? "auto";
  if (next) {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    try {
      localStorage.setItem(REMEMBERED, theme);
    } catch {
      say("The browser cannot store it");
    }
  }
  const button = byId("theme");
  button.replaceChildren(icon({ auto: "auto", light: "sun", dark: "moon" }[theme]));
  button.setAttribute("aria-label", `Theme: ${theme}`);
  button.title = `Theme: ${theme === "auto" ? "as the system" : theme} (b)`;
}

async function described() {
  try {
    const told = await get("store");
    byId("store-path").textContent = oneLine(told.path.split(/[/\\]/).pop(), 120);
    byId("store-path").title = `${oneLine(told.path, 400)}, schema ${told.version}`;
    byId("store-sums").textContent =
      `${counted(told.threads, "thread")} · ${counted(told.events, "event")} · ${size(told.bytes)}`;
    byId("store-sums").title =
      `${counted(told.chunks, "chunk")} and ${counted(told.tokens, "token")} in the states of all threads; ${size(told.payload_bytes)} of events`;
    byId("store-mode").textContent = told.may_write ? "may write" : "read-only";
    byId("store-mode").title = told.may_write
      ? "Started with --write: what-ifs can be kept, compactions undone"
      : "This page only looks; --write lets it keep what-ifs and undo compactions";
    byId("store-mode").classList.toggle("strong", told.may_write);
    byId("store-problem").replaceChildren();
  } catch (error) {
    byId("store-problem").replaceChildren(failure(error, begin));
  }
}

// Where the address names no thread, the one with the newest event is opened.
async function begin() {
  await Promise.all([described(), threads.reload()]);
  const newest = threads.pages.at(0);
  if (!place.thread && newest) entered(newest, place.landed);
}

byId("live").addEventListener("click", () => live());
byId("theme").addEventListener("click", () => themed(true));
byId("mark").addEventListener("click", marked);
byId("copy-link").addEventListener("click", linked);
byId("copy-link").append(icon("link"));
byId("save-view").addEventListener("click", kept);
byId("save-view").append(icon("save"));
byId("threads-toggle").addEventListener("click", () => byId("window").classList.toggle("threads-open"));

// Where there is room for one column only: threads, then the log of one, then what an event was; each leads back.
function column(name) {
  byId("window").dataset.column = name;
  panel.current.button.scrollIntoView({ block: "nearest", inline: "nearest" }); // what is hidden cannot be scrolled
}
byId("events").addEventListener("click", ({ target }) => target.closest(".fold-toggle") || column("right"), true);
byId("back").addEventListener("click", () => column("middle"));
byId("back-threads").addEventListener("click", () => column("left"));

place.land();
column("right");
splitters();
themed();
begin();
if (place.thread) opened(); // which listens to its news once it is there
store.listen({});
slider.draw();
