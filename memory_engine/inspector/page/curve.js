// Tokens of the state over the whole log, above the slider: compactions are its drops, broken caches its marks.

import { byId, counted, el, number, oneLine, setStyle, svg } from "./dom.js";
import { place } from "./place.js";
import { get, isAbort } from "./server.js";

const BINS = 400;
const FIRST_MS = 150; // what one looks at comes first
const AGAIN_MS = 400;
const BREAKS_MS = 1200; // a ledger takes the server a moment
const LEDGER_CHUNKS = 2000;
const MATTERS = 0.05; // of the highest: a break that loses less says little
const APART_PX = 8;

export class Curve {
  constructor(timeline) {
    this.timeline = timeline;
    this.host = byId("curve");
    this.note = byId("curve-note");
    this.clear();
    timeline.addEventListener("head", () => this.later());
    place.addEventListener("change", ({ detail }) => {
      if (detail.has("thread")) this.clear();
      if (detail.has("seq")) this.point();
    });
    document.addEventListener("visibilitychange", () => document.hidden || this.later());
    this.host.addEventListener("pointermove", (event) => this.say(this.at(event)));
    this.host.addEventListener("pointerleave", () => this.say());
    this.host.addEventListener("click", (event) => this.data && place.go({ seq: this.at(event) }));
  }

  clear() {
    this.control?.abort();
    clearTimeout(this.timer);
    clearTimeout(this.breaking);
    Object.assign(this, { control: null, data: null, breaks: [], asked: "", thread: "" });
    this.host.replaceChildren();
    this.host.removeAttribute("aria-label");
    this.note.textContent = "";
    this.host.hidden = true;
  }

  // The log was opened, has grown, or its compactions are known now.
  later() {
    const { thread, head, outline } = this.timeline;
    if (!thread || !outline || document.hidden) return;
    if (this.thread === thread && this.data?.upto === head) return this.draw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(thread), this.thread === thread ? AGAIN_MS : FIRST_MS);
  }

  async load(thread) {
    this.control?.abort();
    clearTimeout(this.breaking);
    const control = (this.control = new AbortController());
    this.thread = thread;
    try {
      do {
        this.data = await get("tokens", { thread, bins: BINS }, control.signal);
        if (control.signal.aborted) return;
        this.draw();
      } while (this.data.upto < this.data.head && !document.hidden);
    } catch (error) {
      if (!isAbort(error) && !control.signal.aborted) {
        this.host.hidden = false;
        this.note.textContent = oneLine(error.message, 200);
      }
      return;
    }
    this.breaking = setTimeout(() => this.broken(thread, control.signal), BREAKS_MS);
  }

  async broken(thread, signal) {
    const key = `${thread}|${this.data.head}`;
    if (this.asked === key || this.data.chunks > LEDGER_CHUNKS) return;
    try {
      const { breaks } = await get("ledger", { thread }, signal);
      this.asked = key;
      this.breaks = breaks.filter(({ trailing, lost_tokens: lost }) => !trailing && lost >= MATTERS * this.data.highest);
      this.draw();
    } catch {
      // the tab Cache says why
    }
  }

  // ---- drawn in units of seqs and tokens, whatever the room

  draw() {
    const { points, highest, head, upto } = this.data;
    this.host.hidden = head < 2;
    if (head < 2) return;
    const most = Math.max(1, highest);
    const line = [[0, 0]];
    let before = [0, 0, 0];
    for (const [last, high, end] of points) {
      if (high > end && high > before[2]) line.push([(before[0] + last) / 2, high]);
      line.push([last, end]);
      before = [last, high, end];
    }
    const path = line.map(([x, y]) => `${x} ${most - y}`).join("L");
    const picture = svg(
      "svg",
      { viewBox: `0 0 ${head} ${most}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("path", { class: "area", d: `M${path}L${upto} ${most}L0 ${most}Z` }),
      svg("path", { class: "line", d: `M${path}` }),
      svg("path", { class: "drops", d: this.drops(most) }),
    );
    this.after = el("i", { class: "after" });
    this.host.replaceChildren(picture, this.after, ...this.marks(head));
    this.host.setAttribute("aria-label", this.told());
    this.point();
    this.say();
  }

  drops(most) {
    const { points } = this.data;
    const done = (this.timeline.outline?.compactions ?? []).filter(({ status }) => status === "completed" || status === "undone");
    const bins = new Set(done.map(({ seq }) => points.findIndex(([last]) => last >= seq)));
    return [...bins]
      .filter((bin) => bin >= 0)
      .map((bin) => {
        const [last, high, end] = points[bin];
        const from = Math.max(high, points[bin - 1]?.[2] ?? 0);
        return `M${last} ${most - from}L${last} ${most - end}`;
      })
      .join("");
  }

  marks(head) {
    const taken = new Map();
    const room = Math.max(1, Math.floor(this.host.clientWidth / APART_PX));
    for (const broke of this.breaks) {
      const bin = Math.round((broke.seq / head) * room);
      taken.set(bin, [...(taken.get(bin) ?? []), broke]);
    }
    return [...taken.values()].map((some) => {
      const lost = some.reduce((sum, { lost_tokens: tokens }) => sum + tokens, 0);
      const said = some.length > 1 ? `${some.length} events` : `event ${number(some[0].seq)}`;
      const mark = el("i", {
        class: "broke",
        title: `${said} broke the prompt cache: ${counted(lost, "token")} sent anew\n${oneLine(some[0].why, 160)}`,
      });
      setStyle(mark, { left: `${(100 * some[0].seq) / head}%` });
      return mark;
    });
  }

  point() {
    if (!this.data || !this.after) return;
    setStyle(this.after, { left: `${(100 * (place.seq ?? this.data.head)) / Math.max(1, this.data.head)}%` });
  }

  at(event) {
    const { left, width } = this.host.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - left) / Math.max(1, width)));
    return Math.round(share * (this.data?.head ?? 0));
  }

  say(seq = null) {
    if (!this.data) return;
    const { points, highest, head, upto } = this.data;
    const found = seq === null ? null : points.find(([last]) => last >= seq);
    if (found) this.note.textContent = `event ${number(seq)}: ${counted(found[seq === found[0] ? 2 : 1], "token")}`;
    else if (upto < head) this.note.textContent = `${number(upto)} of ${counted(head, "event")} read`;
    else this.note.textContent = `up to ${counted(highest, "token")}`;
  }

  told() {
    const { points, highest } = this.data;
    const folds = (this.timeline.outline?.compactions ?? []).filter(({ status }) => status === "completed").length;
    const breaks = this.breaks.length ? `, ${counted(this.breaks.length, "break")} of the prompt cache` : "";
    return `Tokens of the state: ${number(points.at(-1)?.[2] ?? 0)} now, ${number(highest)} at most, ${counted(folds, "compaction")}${breaks}`;
  }
}
