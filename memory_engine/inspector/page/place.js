// Where one looks: a thread, a seq, a tab, a marked point, a chunk. It stands in the address behind the #.

// The tabs in their order, each with the key that leads there.
export const TAB_KEYS = {
  conversation: "1",
  event: "2",
  state: "3",
  context: "4",
  views: "5",
  lineage: "6",
  diff: "7",
  forks: "8",
  cache: "9",
  recall: "0",
  brief: "p",
  time: "u",
  whatif: "w",
  store: "s",
};
export const TABS = Object.keys(TAB_KEYS);

const PAUSE_MS = 120;

class Place extends EventTarget {
  thread = "";
  seq = null; // null: wherever the log ends
  tab = "conversation";
  landed = false; // whether the page was opened without a thread: then the store is shown, until one looks at something
  chosen = false; // whether somebody chose the tab; else it is the one that fits the kind of the thread
  mark = null; // {thread, seq}: the first point of a diff
  chunk = "";
  budget = ""; // of the context, in tokens; empty: no limit
  question = ""; // that the context is built for
  recall = ""; // the question that memory is asked
  written = -PAUSE_MS; // when the address was changed last

  // Go elsewhere. Another thread is a step that the browser's back button undoes.
  go(change) {
    if (change.tab) this.chosen = true;
    // Who goes on to another event looks at that one, unless he follows a lineage from event to event.
    if (change.seq !== undefined && change.chunk === undefined && this.tab !== "lineage") change = { ...change, chunk: "" };
    const left = this.landed && (change.seq !== undefined || change.tab) && this.seq !== null;
    const changed = Object.keys(change).filter((name) => JSON.stringify(change[name]) !== JSON.stringify(this[name]));
    if (!changed.length) {
      if (left) this.leave();
      return;
    }
    const first = !this.thread; // nobody goes back to where no thread was open
    Object.assign(this, change);
    if (changed.includes("thread")) {
      clearTimeout(this.timer);
      if (first) history.replaceState(null, "", `#${this}`);
      else history.pushState(null, "", `#${this}`);
    } else {
      this.later();
    }
    this.tell(changed);
    if (left) this.leave();
  }

  // Without a thread to go to: the store is what one sees.
  land() {
    if (this.thread || this.chosen) return;
    this.landed = true;
    this.tab = "store";
    this.tell(["tab"]);
  }

  leave() {
    this.landed = false;
    if (!this.chosen) this.fit(this.kind);
  }

  // The tab to begin with in a thread of some kind, unless one was chosen.
  fit(kind) {
    const tab = kind === "conversation" ? "conversation" : "event";
    this.kind = kind;
    if (this.landed || this.chosen || tab === this.tab) return;
    this.tab = tab;
    this.tell(["tab"]);
  }

  // Browsers refuse too many changes of the address: whoever runs through a log changes it now and then.
  later() {
    clearTimeout(this.timer);
    const write = () => {
      this.written = performance.now();
      history.replaceState(null, "", `#${this}`);
    };
    const wait = this.written + PAUSE_MS - performance.now();
    if (wait > 0) this.timer = setTimeout(write, wait);
    else write();
  }

  // Take over what the address says: at the start, and when it was changed by hand or by the back button.
  read() {
    clearTimeout(this.timer);
    const query = new URLSearchParams(location.hash.slice(1));
    const seq = query.get("seq");
    const mark = query.get("mark");
    const said = {
      thread: query.get("thread") ?? "",
      seq: whole(seq),
      tab: TABS.includes(query.get("tab")) ? query.get("tab") : this.tab,
      mark:
        whole(mark) === null
          ? null
          : { thread: query.get("mark_thread") ?? query.get("thread") ?? "", seq: whole(mark) },
      chunk: query.get("chunk") ?? "",
      budget: whole(query.get("budget")) ? query.get("budget") : "",
      question: query.get("question") ?? "",
      recall: query.get("recall") ?? "",
    };
    this.chosen = TABS.includes(query.get("tab"));
    const changed = Object.keys(said).filter((name) => JSON.stringify(said[name]) !== JSON.stringify(this[name]));
    Object.assign(this, said);
    return changed;
  }

  tell(changed) {
    this.dispatchEvent(new CustomEvent("change", { detail: new Set(changed) }));
  }

  toString() {
    const query = new URLSearchParams();
    if (this.thread) query.set("thread", this.thread);
    if (this.seq !== null) query.set("seq", this.seq);
    if (this.chosen) query.set("tab", this.tab);
    if (this.mark) {
      query.set("mark", this.mark.seq);
      if (this.mark.thread !== this.thread) query.set("mark_thread", this.mark.thread);
    }
    for (const name of ["chunk", "budget", "question", "recall"]) if (this[name]) query.set(name, this[name]);
    return query.toString();
  }
}

function whole(text) {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

export const place = new Place();

addEventListener("pagehide", () => history.replaceState(null, "", `#${place}`));
addEventListener("popstate", () => {
  const changed = place.read();
  if (changed.length) place.tell(changed);
});
