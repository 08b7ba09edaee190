// The keyboard: everything the page does can be done without a mouse.

import { byId, el, say } from "./dom.js";
import { place, TAB_KEYS, TABS } from "./place.js";

const KEYS = [
  [
    "Move",
    [
      ["j ↓", "next event"],
      ["k ↑", "event before"],
      ["PgDn PgUp", "next, previous page"],
      ["Home End", "first, last event"],
      ["g", "go to an event by its number"],
      ["[ ]", "compaction before, after"],
      ["Enter → ←", "open and close a compaction's fold"],
    ],
  ],
  [
    "Look",
    [
      ["1 … 9 0", "the tabs, in their order"],
      ["p u w s", "the brief, time and cost, what if, the store"],
      ["d", "mark this event as A, to compare"],
      ["/", "search the events"],
      ["t", "the list of threads"],
      ["e", "back to the events"],
      ["c", "copy the event's id"],
      ["y", "copy a link to this view"],
    ],
  ],
  [
    "Page",
    [
      ["l", "follow the log, or stop following"],
      ["b", "dark, light, as the system"],
      ["Esc", "leave a field; end a search"],
      ["?", "this help"],
    ],
  ],
];

const typing = (target) => target.matches("input:not([type=range]), select, textarea, [contenteditable]");
// Where arrows, pages and the space bar already mean something.
const ownKeys = (target) =>
  target.closest("[role=tab], [role=listbox], input[type=range], summary, dialog, .picture") !== null;

export class Keys {
  // does: {timeline, live(), theme(), mark(), copy()}
  constructor(does) {
    this.does = does;
    this.help = byId("help");
    byId("help-body").replaceChildren(
      ...KEYS.map(([title, keys]) =>
        el(
          "section",
          {},
          el("h3", { text: title }),
          el(
            "dl",
            {},
            ...keys.flatMap(([key, what]) => [
              el("dt", {}, ...key.split(" ").map((one) => el("kbd", { text: one }))),
              el("dd", { text: what }),
            ]),
          ),
        ),
      ),
    );
    byId("help-open").addEventListener("click", () => this.help.showModal());
    byId("help-close").addEventListener("click", () => this.help.close());
    this.help.addEventListener("click", (event) => event.target === this.help && this.help.close());
    addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (this.help.open) {
      if (event.key === "?") this.help.close();
      return;
    }
    if (typing(event.target)) {
      // Enter in the field of the position goes there: then keys mean the timeline again.
      if (event.key === "Escape" || (event.key === "Enter" && event.target.id === "slider-seq")) byId("events").focus();
      return;
    }
    const act = this.anywhere(event.key) ?? (ownKeys(event.target) ? undefined : this.among(event.key));
    if (!act) return;
    event.preventDefault();
    act();
  }

  anywhere(key) {
    const { timeline } = this.does;
    const tab = TABS.find((id) => TAB_KEYS[id] === key);
    if (tab) return () => place.go({ tab });
    return {
      j: () => timeline.step(1),
      k: () => timeline.step(-1),
      g: () => byId("slider-seq").select(),
      "[": () => timeline.toCompaction(-1) || say("No compaction before this"),
      "]": () => timeline.toCompaction(1) || say("No compaction after this"),
      "/": () => byId("events-search").select(),
      t: () => this.does.threads(),
      e: () => byId("events").focus(),
      d: () => this.does.mark(),
      c: () => this.does.copy(),
      y: () => this.does.link(),
      l: () => this.does.live(),
      b: () => this.does.theme(),
      "?": () => this.help.showModal(),
    }[key];
  }

  // Keys that mean the timeline, unless something else has the focus that knows them.
  among(key) {
    const { timeline } = this.does;
    const inTimeline = document.activeElement === timeline.host || document.activeElement === document.body;
    const page = timeline.list.perPage;
    return {
      ArrowDown: () => timeline.step(1),
      ArrowUp: () => timeline.step(-1),
      PageDown: () => timeline.step(page),
      PageUp: () => timeline.step(-page),
      Home: () => timeline.toStart(),
      End: () => timeline.toEnd(),
      ...(inTimeline && {
        Enter: () => timeline.act(),
        ArrowRight: () => timeline.isOpen || timeline.act(),
        ArrowLeft: () => timeline.isOpen && timeline.act(),
      }),
    }[key];
  }
}
