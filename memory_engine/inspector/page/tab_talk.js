// The conversation as talk, up to the chosen event. Pages of turns stand in a row; only those near the view are filled,
// each as high as it is; the others keep the height that they had.

import { el, empty, failure, number, setStyle } from "./dom.js";
import { place } from "./place.js";
import { get, isAbort } from "./server.js";
import { turn } from "./talk_turns.js";

const TURN_PX = 84; // a guess, until a page was seen
const REST_MS = 50; // whoever scrolls fast passes pages by
const KEPT = 60;
const SAVED = 25; // pages

// A turn that was clicked selects its event in the log; the talk stays as it is meanwhile.
let pinned = null; // {thread, at, seq}
let shown = null; // the Talk in view

const asOf = ({ thread, seq }) => (pinned?.thread === thread && pinned.seq === seq ? pinned.at : (seq ?? 0));

export const talkTab = {
  id: "conversation",
  title: "Conversation",
  stays: true,
  key: (look) => String(asOf(look)),
  controls(bar, again) {
    this.note = el("span", { class: "dim grow" });
    this.release = el("button", { type: "button" });
    this.release.addEventListener("click", () => {
      pinned = null;
      again();
    });
    bar.append(this.note, this.release);
  },
  follows(look) {
    const at = asOf(look);
    const behind = at !== (look.seq ?? 0);
    this.note.textContent = `The talk as of event ${number(at)}${at === look.head ? ", the last" : ""}`;
    this.release.hidden = !behind;
    this.release.textContent = behind ? `as of event ${number(look.seq)}` : "";
    shown?.choose(look.seq);
  },
  load: (look, signal) => get("talk", { thread: look.thread, seq: asOf(look), quick: 1 }, signal),
  whole: () => shown?.whole(),
  async show(body, data, look) {
    const before = shown?.thread === look.thread && shown.body.isConnected && data.seq > shown.data.seq ? shown.first() : null;
    shown?.close();
    shown = null;
    if (!data.total) {
      body.replaceChildren(empty(look.seq ? "Nothing was said up to here" : "Nothing was said yet"));
      return;
    }
    shown = new Talk(body, data, look.thread);
    shown.open(before);
    shown.choose(look.seq);
    if (data.partial) complete(body, data, look);
  },
};

// The end of a long talk comes first; all of it, once the log was read.
async function complete(body, data, { thread }) {
  try {
    const whole = await get("talk", { thread, seq: data.seq });
    if (shown?.data !== data) return;
    const first = shown.first();
    shown.close();
    shown = new Talk(body, whole, thread);
    shown.open(first && { ...first, index: first.index + whole.total - data.total });
    shown.choose(place.seq);
  } catch (error) {
    if (shown?.data === data) body.prepend(failure(error));
  }
}

class Talk {
  constructor(body, data, thread) {
    this.body = body;
    this.panel = body.parentElement;
    this.data = data;
    this.thread = thread;
    this.control = new AbortController();
    this.turns = new Map([[data.offset / data.limit, data.turns]]); // page → turns
    this.filled = new Set();
    this.near = new Set();
    this.does = {
      thread,
      seq: data.seq,
      opened: new Set(),
      choose: (seq) => {
        pinned = { thread, at: data.seq, seq };
        place.go({ seq });
        this.choose(seq);
      },
    };
    this.pages = Array.from({ length: Math.ceil(data.total / data.limit) }, (_, n) => {
      const page = el("div", { class: "talk-page", data: { page: n } });
      setStyle(page, { height: `${TURN_PX * Math.min(data.limit, data.total - n * data.limit)}px` });
      return page;
    });
    this.host = el("div", { class: "talk", role: "feed", "aria-label": "Conversation" }, ...this.pages);
    this.watch = new IntersectionObserver((entries) => this.moved(entries), { root: this.panel, rootMargin: "900px 0px" });
  }

  // At its end, or at the turn that was first in view before the log grew.
  open(first) {
    this.body.replaceChildren(this.host);
    this.fill(this.data.offset / this.data.limit);
    this.panel.scrollTop = this.panel.scrollHeight;
    if (first) this.fetch(Math.floor(first.index / this.data.limit)).then(() => this.restore(first));
    for (const page of this.pages) this.watch.observe(page);
  }

  close() {
    this.watch.disconnect();
    this.control.abort();
    clearTimeout(this.timer);
  }

  moved(entries) {
    for (const { target, isIntersecting } of entries) {
      const page = Number(target.dataset.page);
      if (isIntersecting) this.near.add(page);
      else {
        this.near.delete(page);
        this.empty(page);
      }
    }
    clearTimeout(this.timer);
    for (const page of this.near) if (this.turns.has(page)) this.fill(page);
    this.timer = setTimeout(() => [...this.near].map((page) => this.fetch(page)), REST_MS);
  }

  async fetch(page) {
    if (this.turns.has(page)) return this.fill(page);
    const { limit } = this.data;
    try {
      const asked = { thread: this.thread, seq: this.data.seq, offset: page * limit, limit };
      const { turns } = await get("talk", asked, this.control.signal);
      this.turns.set(page, turns);
      if (this.turns.size > KEPT) this.turns.delete([...this.turns.keys()].find((old) => !this.near.has(old) && old !== page));
      this.fill(page);
    } catch (error) {
      if (!isAbort(error)) this.pages[page].replaceChildren(failure(error, () => this.fetch(page)));
    }
  }

  fill(page) {
    if (this.filled.has(page)) return;
    const atEnd = this.atEnd;
    const { limit, total } = this.data;
    this.filled.add(page);
    this.pages[page].replaceChildren(
      ...this.turns.get(page).map((lines, n) => turn(lines, page * limit + n, total, this.does)),
    );
    setStyle(this.pages[page], { height: "auto" });
    if (atEnd) this.panel.scrollTop = this.panel.scrollHeight;
    this.choose(this.chosen);
  }

  empty(page) {
    if (!this.filled.delete(page)) return;
    setStyle(this.pages[page], { height: `${this.pages[page].offsetHeight}px` });
    this.pages[page].replaceChildren();
  }

  // Fill every page, at most so many of the last, for who keeps the talk; what is given back empties them again.
  async whole() {
    const last = this.pages.length - 1;
    const some = this.pages.map((_, page) => page).filter((page) => page > last - SAVED && !this.filled.has(page));
    for (const page of some) await this.fetch(page);
    return () => some.filter((page) => !this.near.has(page)).forEach((page) => this.empty(page));
  }

  get atEnd() {
    return this.panel.scrollTop + this.panel.clientHeight >= this.panel.scrollHeight - 60;
  }

  // The turn that stands first in the view and how far below its top, unless one looks at the end.
  first() {
    if (this.atEnd || this.panel.hidden) return null;
    const top = this.panel.getBoundingClientRect().top;
    const seen = [...this.host.querySelectorAll(".talk-page > .turn")].find((one) => one.getBoundingClientRect().bottom > top);
    return seen ? { index: Number(seen.getAttribute("aria-posinset")) - 1, below: seen.getBoundingClientRect().top - top } : null;
  }

  restore({ index, below }) {
    const seen = this.host.querySelector(`.talk-page > [aria-posinset="${index + 1}"]`);
    if (seen) this.panel.scrollTop += seen.getBoundingClientRect().top - this.panel.getBoundingClientRect().top - below;
  }

  choose(seq) {
    this.chosen = seq;
    for (const one of this.host.querySelectorAll(".turn"))
      one.classList.toggle("chosen", (one.dataset.seqs ?? "").split(" ").includes(String(seq)));
  }
}
