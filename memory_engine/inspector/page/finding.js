// Searching the open thread: events whose payload holds some words, events of a type. Found page by page.

import { byId, counted, el, number } from "./dom.js";
import { get, isAbort } from "./server.js";

const MORE = 200;

export class Finding {
  constructor(timeline, drawn) {
    this.timeline = timeline;
    this.drawn = drawn;
    this.box = byId("events-search");
    this.type = byId("events-type");
    this.types = byId("events-types");
    this.reset();
    let pause;
    const later = () => {
      clearTimeout(pause);
      pause = setTimeout(() => this.begin(), 250);
    };
    this.box.addEventListener("input", later);
    this.type.addEventListener("input", later);
    for (const field of [this.box, this.type]) {
      field.addEventListener("keydown", (event) => {
        if (event.key === "Enter") {
          clearTimeout(pause);
          if (!this.on || this.q !== this.box.value || this.of !== this.type.value) this.begin();
          this.timeline.host.focus();
        } else if (event.key === "Escape") {
          clearTimeout(pause);
          this.end();
          this.timeline.host.focus();
        } else return;
        event.preventDefault();
      });
    }
  }

  reset() {
    this.control?.abort();
    this.control = null;
    Object.assign(this, { on: false, q: "", of: "", events: [], next: null, wanted: MORE, error: null });
  }

  // Forget the search, fields and all, without a word to the timeline.
  clear() {
    this.reset();
    this.box.value = "";
    this.type.value = "";
  }

  end() {
    this.clear();
    this.drawn();
    this.timeline.reveal();
  }

  begin() {
    const [q, of] = [this.box.value, this.type.value.trim()];
    this.reset();
    if (q || of) {
      Object.assign(this, { on: true, q, of, next: 0 });
      this.search();
    }
    this.drawn();
    if (this.on) this.timeline.list.scrollTo(0);
    else this.timeline.reveal();
  }

  more() {
    if (this.control || this.next === null || this.error) return;
    this.wanted = this.events.length + MORE;
    this.search();
  }

  async search() {
    const control = (this.control = new AbortController());
    try {
      while (this.next !== null && this.events.length < this.wanted) {
        const asked = { thread: this.timeline.thread, q: this.q, type: this.of, after: this.next, limit: MORE };
        const found = await get("find", asked, control.signal);
        if (control !== this.control) return;
        this.events.push(...found.events);
        this.next = found.next;
        this.drawn();
      }
    } catch (error) {
      if (isAbort(error) || control !== this.control) return;
      this.error = error;
    }
    this.control = null;
    this.drawn();
  }

  said() {
    const found = `${counted(this.events.length, "event")} found`;
    if (this.error) return `${found}; then: ${this.error.message}`;
    if (this.control) return `${found}, searching on after event ${number(this.next ?? 0)}…`;
    if (this.next !== null) return `${found} so far, up to event ${number(this.next)}`;
    return this.events.length ? found : "No event matches";
  }

  offerTypes(types) {
    if (this.types.childElementCount === types.size) return;
    this.types.replaceChildren(...[...types].sort().map((type) => el("option", { value: type })));
  }
}
