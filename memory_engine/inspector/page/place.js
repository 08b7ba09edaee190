// Where one looks: a thread, a seq, a tab, a marked point, a chunk. It stands in the address behind the #.

export const TABS = ["event", "state", "context", "views", "lineage", "diff", "forks", "cache"];

const PAUSE_MS = 120;

class Place extends EventTarget {
  thread = "";
  seq = null; // null: wherever the log ends
  tab = "event";
  mark = null; // {thread, seq}: the first point of a diff
  chunk = "";
  written = -PAUSE_MS; // when the address was changed last

  // Go elsewhere. Another thread is a step that the browser's back button undoes.
  go(change) {
    const changed = Object.keys(change).filter((name) => JSON.stringify(change[name]) !== JSON.stringify(this[name]));
    if (!changed.length) return;
    Object.assign(this, change);
    if (changed.includes("thread")) {
      clearTimeout(this.timer);
      history.pushState(null, "", `#${this}`);
    } else {
      this.later();
    }
    this.tell(changed);
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
      tab: TABS.includes(query.get("tab")) ? query.get("tab") : "event",
      mark:
        whole(mark) === null
          ? null
          : { thread: query.get("mark_thread") ?? query.get("thread") ?? "", seq: whole(mark) },
      chunk: query.get("chunk") ?? "",
    };
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
    query.set("tab", this.tab);
    if (this.mark) {
      query.set("mark", this.mark.seq);
      if (this.mark.thread !== this.thread) query.set("mark_thread", this.mark.thread);
    }
    if (this.chunk) query.set("chunk", this.chunk);
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
