// The events of the open thread, all of them: only those in view exist. New ones appear while an agent runs.

import { byId, counted, failure, number, oneLine } from "./dom.js";
import { Finding } from "./finding.js";
import { place } from "./place.js";
import { eventRow, originalRow } from "./rowing.js";
import { Rows } from "./rows.js";
import { get } from "./server.js";
import { Pages, VirtualList } from "./virtual.js";

const PAGE = 200;
const HEIGHT = 28;
const SHOWN = 8; // rows of an opened fold that are brought into view
const SUMMARY = "compacted";
const LOADING = "Loading the originals…";
const REWINDS = ["thread_rewound", "facts_rewound", "source_quarantined"];

export class Timeline extends EventTarget {
  constructor() {
    super();
    this.host = byId("events");
    this.note = byId("events-note");
    this.problem = byId("events-problem");
    this.pill = byId("events-new");
    this.rows = new Rows();
    this.thread = "";
    this.opening = Boolean(place.thread);
    this.outline = null;
    this.inner = null; // the row below an open compaction that the keys are on
    this.status = "";
    this.following = true;
    this.unseen = 0;
    this.types = new Set();
    this.pages = new Pages({
      length: PAGE,
      fetchPage: (page, signal) => this.fetch(page, signal),
      arrived: (page, items) => this.arrived(page, items),
      failed: (error) => this.fail(error),
    });
    this.finding = new Finding(this, () => this.drawn());
    this.list = new VirtualList(this.host, {
      height: HEIGHT,
      role: "row",
      fill: (row, index) => this.fill(row, index),
      drawn: (first, last) => this.want(first, last),
      scrolled: () => this.list.atEnd() && this.unseen && this.count(0),
    });
    this.host.addEventListener("click", (event) => this.click(event));
    this.pill.addEventListener("click", () => this.toEnd());
    place.addEventListener("change", ({ detail }) => {
      if (detail.has("seq")) this.inner = null;
      if (detail.has("seq") && !detail.has("thread")) this.reveal();
      if (detail.has("seq") || detail.has("mark")) this.list.refresh();
    });
  }

  get head() {
    return this.rows.head;
  }

  // ---- a thread is opened

  async open(thread, head = null) {
    this.thread = thread;
    this.opening = Boolean(thread); // until its head is known: what tabs show of it depends on that
    this.outline = null;
    this.status = "";
    this.inner = null;
    this.types.clear();
    this.pages.clear();
    this.rows.clear();
    this.finding.clear();
    this.count(0);
    this.problem.replaceChildren();
    this.host.classList.toggle("none", !thread);
    this.list.resize(0);
    this.tellHead();
    if (!thread) return;
    try {
      const known = head ?? (await get("timeline", { thread, after: 0, limit: 1 })).head;
      if (thread !== this.thread) return;
      this.rows.head = known;
      this.opening = false;
      if (place.seq === null || place.seq > known) place.go({ seq: known });
      this.list.resize(this.rows.count);
      this.reveal();
      this.pages.fetch(); // nobody scrolls yet: what is in view is fetched without a pause
      this.tellHead();
      await this.outlined();
    } catch (error) {
      if (thread !== this.thread) return;
      this.opening = false;
      this.fail(error);
    }
  }

  async outlined() {
    const thread = this.thread;
    try {
      const outline = await get("outline", { thread });
      if (thread !== this.thread) return;
      this.outline = outline;
      this.compactions = new Map(outline.compactions.map((compaction) => [compaction.seq, compaction]));
      this.forks = new Map();
      for (const fork of outline.forks) this.forks.set(fork.seq, [...(this.forks.get(fork.seq) ?? []), fork.thread_id]);
      this.status = outline.status;
      if (outline.head > this.head) this.grown(outline.head, outline.status);
      this.list.refresh();
      this.tellHead();
    } catch (error) {
      if (thread === this.thread) this.fail(error);
    }
  }

  async fetch(page, signal) {
    const { events } = await get("timeline", { thread: this.thread, after: page * PAGE, limit: PAGE }, signal);
    return events;
  }

  arrived(page, items) {
    this.problem.replaceChildren();
    for (const item of items) this.types.add(item.type);
    this.finding.offerTypes(this.types);
    const due = Math.min(PAGE, this.head - page * PAGE);
    if (items.length < due) setTimeout(() => this.pages.fetchOne(page), 300); // it grew while it was read
    const drawn = (item) => item.role === "compaction" || REWINDS.includes(item.type);
    if (this.outline && items.some((item) => drawn(item) && item.seq > this.outline.head))
      this.outlined();
    this.list.refresh();
    this.dispatchEvent(new Event("rows"));
  }

  fail(error) {
    this.problem.replaceChildren(
      failure(error, () => {
        this.problem.replaceChildren();
        if (this.head) this.list.refresh();
        else this.open(this.thread);
      }),
    );
  }

  // ---- what is shown

  event(seq) {
    return this.pages.at(seq - 1) ?? this.finding.events.find((event) => event.seq === seq);
  }

  // The event, if need be fetched: for keys that act on the chosen one.
  async eventAt(seq) {
    return this.event(seq) ?? (await get("timeline", { thread: this.thread, after: seq - 1, limit: 1 })).events[0];
  }

  drawn() {
    this.list.resize(this.finding.on ? this.finding.events.length : this.rows.count);
    this.describe();
  }

  describe() {
    const status = this.status && this.status !== "active" ? ` · ${oneLine(this.status, 30)}` : "";
    this.note.textContent = this.finding.on
      ? this.finding.said()
      : this.thread
        ? `${counted(this.head, "event")}${status}`
        : "";
    this.host.dataset.empty =
      this.finding.on && !this.finding.events.length
        ? this.finding.said()
        : this.thread && !this.head
          ? "No event yet"
          : "";
  }

  want(first, last) {
    if (this.finding.on) {
      if (last >= this.finding.events.length - 20) this.finding.more();
      return;
    }
    const seqs = [first, last].map((index) => this.rows.at(index)).map((row) => row.seq ?? row.fold.seq);
    this.pages.want(seqs[0] - 1, seqs[1] - 1);
  }

  fill(row, index) {
    row.dataset.index = index;
    if (this.finding.on) {
      const event = this.finding.events[index];
      eventRow(row, event, this.facts(event.seq));
      return;
    }
    const { seq, fold, line } = this.rows.at(index);
    if (line) originalRow(row, fold.seq, line, line === this.inner);
    else eventRow(row, this.pages.at(seq - 1), this.facts(seq));
  }

  facts(seq) {
    return {
      seq,
      chosen: seq === place.seq,
      later: place.seq !== null && seq > place.seq,
      marked: place.mark?.thread === this.thread && place.mark.seq === seq,
      compaction: this.outline && this.compactions.get(seq),
      forks: this.outline && this.forks.get(seq),
      takenBack: this.outline?.taken_back.some(([first, last]) => first <= seq && seq <= last),
      quarantine: this.outline?.quarantines.find((one) => one.seqs.includes(seq)),
      open: Boolean(this.rows.fold(seq)) && !this.finding.on,
      needle: this.finding.on ? this.finding.q : "",
    };
  }

  reveal() {
    if (place.seq === null || !this.thread) return;
    const index = this.finding.on ? this.finding.events.findIndex((event) => event.seq === place.seq) : this.index;
    if (index < 0) {
      this.host.removeAttribute("aria-activedescendant");
      return;
    }
    this.host.setAttribute("aria-activedescendant", `${this.host.id}-${index}`);
    this.list.reveal(index);
  }

  click(event) {
    const row = event.target.closest("[role=row]");
    if (!row) return;
    const { seq, fold, line } = this.finding.on
      ? { seq: Number(row.dataset.seq) }
      : this.rows.at(Number(row.dataset.index));
    if (line) {
      if (event.target.closest(".fold-toggle")) this.toggleLine(fold, line);
      else if (line.chunk) place.go({ chunk: line.chunk.id, tab: "lineage" });
    } else if (event.target.closest(".fold-toggle")) this.toggle(seq);
    else if (event.target.closest(".fork-mark")) place.go({ seq, tab: "forks" });
    else place.go({ seq });
  }

  // ---- compactions, as folds

  // Open or close what the chosen row holds; a chunk that holds nothing is explained.
  act() {
    if (!this.inner) return this.toggle(place.seq);
    const fold = this.rows.fold(place.seq);
    if (this.inner.chunk?.type === SUMMARY) return this.toggleLine(fold, this.inner);
    if (this.inner.chunk) place.go({ chunk: this.inner.chunk.id, tab: "lineage" });
  }

  // Tell whether what the chosen row holds is open.
  get isOpen() {
    return Boolean(this.inner ? this.inner.open : this.rows.fold(place.seq));
  }

  async toggle(seq) {
    const compaction = this.compactions?.get(seq);
    if (!compaction || !["completed", "undone"].includes(compaction.status)) return;
    if (this.finding.on) this.finding.end();
    this.inner = null;
    if (this.rows.fold(seq)) {
      this.rows.close(seq);
    } else {
      this.rows.open(seq, [{ note: LOADING, level: 2 }]);
      this.drawn();
      const lines = await this.originals(compaction.summaries, 2);
      if (!this.rows.fold(seq)) return;
      this.rows.open(seq, lines.length ? lines : [{ note: "It kept nothing of what it covered", level: 2 }]);
    }
    this.drawn();
    if (this.rows.fold(seq))
      this.list.reveal(this.rows.indexOf(seq) + Math.min(SHOWN, this.rows.fold(seq).lines.length));
  }

  async toggleLine(fold, line) {
    if (line.open) {
      this.rows.closeLine(fold, line);
    } else {
      this.rows.openLine(fold, line, [{ note: LOADING, level: line.level + 1 }]);
      this.drawn();
      const lines = await this.originals([line.chunk.id], line.level + 1);
      if (!line.open || this.rows.fold(fold.seq) !== fold) return;
      this.rows.openLine(fold, line, lines);
    }
    this.drawn();
  }

  async originals(summaries, level) {
    const { thread } = this;
    try {
      const answers = await Promise.all(summaries.map((chunk) => get("originals", { thread, chunk })));
      return answers.flatMap(({ chunks, total }) => {
        const lines = chunks.map((chunk) => ({ chunk, level }));
        if (total > chunks.length) lines.push({ note: `and ${number(total - chunks.length)} more`, level });
        return lines;
      });
    } catch (error) {
      return [{ note: `${error.message} Close and open it to try again.`, level }];
    }
  }

  // ---- moving

  step(by) {
    if (this.finding.on) {
      const { events } = this.finding;
      if (!events.length) return;
      const next =
        by > 0
          ? events.findIndex((event) => event.seq > (place.seq ?? 0))
          : events.findLastIndex((event) => event.seq < (place.seq ?? 0));
      const at = next < 0 ? (by > 0 ? events.length - 1 : 0) : next + by - Math.sign(by);
      place.go({ seq: events[Math.min(events.length - 1, Math.max(0, at))].seq });
    } else if (this.head) {
      this.stepTo(Math.min(this.rows.count - 1, Math.max(place.seq && by < -1 ? 0 : -1, this.index + by)));
    }
  }

  // The row that the keys are on: that of the chosen event, or one below it. -1: before the first.
  get index() {
    const index = place.seq ? this.rows.indexOf(place.seq) : -1;
    return this.inner ? index + 1 + this.rows.fold(place.seq).lines.indexOf(this.inner) : index;
  }

  stepTo(index) {
    const { seq = 0, fold, line = null } = index < 0 ? {} : this.rows.at(index);
    place.go({ seq: fold?.seq ?? seq });
    this.inner = line;
    this.reveal();
    this.list.refresh();
  }

  toStart() {
    place.go({ seq: this.finding.on ? (this.finding.events[0]?.seq ?? place.seq) : Math.min(1, this.head) });
  }

  toEnd() {
    const last = this.finding.on ? (this.finding.events.at(-1)?.seq ?? place.seq) : this.head;
    place.go({ seq: last });
    this.list.toEnd();
    this.count(0);
  }

  // The compaction before or after the chosen point.
  toCompaction(way) {
    const seqs = (this.outline?.compactions ?? []).filter(({ status }) => status !== "running").map(({ seq }) => seq);
    seqs.sort((a, b) => a - b);
    const found = way > 0 ? seqs.find((seq) => seq > place.seq) : seqs.findLast((seq) => seq < place.seq);
    if (found !== undefined) place.go({ seq: found });
    return found !== undefined;
  }

  // ---- live

  // The log has grown: go along if one looks at its end, else say how many are new.
  grown(head, status) {
    const changed = status !== this.status;
    this.status = status;
    if (head > this.head) {
      const was = this.head;
      const atEnd = !this.finding.on && this.list.atEnd();
      this.rows.head = head;
      if (was % PAGE && this.pages.pages.has(Math.floor(was / PAGE))) this.pages.fetchOne(Math.floor(was / PAGE));
      if (!this.finding.on) this.list.resize(this.rows.count);
      if (atEnd && this.following) {
        this.list.toEnd();
        if (place.seq === was || place.seq === null) place.go({ seq: head });
      } else {
        this.count(this.unseen + head - was);
      }
    }
    if (changed && this.outline) this.outlined();
    this.tellHead();
  }

  count(unseen) {
    this.unseen = unseen;
    this.pill.hidden = !unseen;
    this.pill.textContent = `${number(unseen)} new ↓`;
  }

  tellHead() {
    this.describe();
    this.dispatchEvent(new Event("head"));
  }
}
