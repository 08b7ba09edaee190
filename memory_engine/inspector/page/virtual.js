// A list of any length of which only the rows in view exist. Rows have one height; row i stands at i × height.

import { el, setStyle } from "./dom.js";

const AROUND = 8; // rows beyond the view that exist too

export class VirtualList {
  // host: the listbox, which scrolls. fill(row element, index) writes a row. drawn(first, last) hears which rows exist.
  constructor(host, { height, fill, role = "option", drawn = () => {}, scrolled = () => {} }) {
    this.host = host;
    this.height = height;
    this.role = role; // of a row: "option" in a listbox, "row" in a grid
    this.fill = fill;
    this.drawn = drawn;
    this.count = 0;
    this.rows = new Map(); // index → element
    this.spare = [];
    this.isDue = false;
    this.isPressed = false;
    this.area = el("div", { class: "rows", role: role === "row" ? "rowgroup" : "presentation" });
    host.replaceChildren(this.area);
    // Kept, since asking the browser makes it lay out the page each time.
    this.top = host.scrollTop;
    this.view = host.clientHeight;
    host.addEventListener(
      "scroll",
      () => {
        this.top = host.scrollTop;
        this.draw();
        scrolled();
      },
      { passive: true },
    );
    // A browser gives no click where what was pressed is replaced before it is released.
    host.addEventListener("pointerdown", () => {
      this.isPressed = true;
    });
    for (const end of ["pointerup", "pointercancel", "blur"])
      addEventListener(end, () => this.isPressed && setTimeout(() => this.released()));
    new ResizeObserver(() => {
      const wasHidden = !this.view;
      this.view = host.clientHeight;
      if (wasHidden) host.scrollTop = this.top = Math.min(this.top, this.lowest); // what is hidden cannot be scrolled
      if (this.ended) this.toEnd();
      else this.draw();
    }).observe(host);
  }

  resize(count) {
    this.count = count;
    for (const index of [...this.rows.keys()]) if (index >= count) this.retire(index, this.rows.get(index));
    setStyle(this.area, { height: `${count * this.height}px` });
    if (this.role === "row") this.host.setAttribute("aria-rowcount", count);
    if (this.top > this.lowest) this.host.scrollTop = this.top = this.lowest;
    this.refresh();
  }

  // Write every row anew, once whoever asks for it has done, and nobody presses one: what they show has changed.
  refresh() {
    if (this.isDue) return;
    this.isDue = true;
    if (!this.isPressed) queueMicrotask(() => this.rewrite());
  }

  released() {
    this.isPressed = false;
    if (this.isDue) this.rewrite();
  }

  rewrite() {
    if (this.isPressed) return;
    this.isDue = false;
    this.draw();
    for (const [index, row] of this.rows) this.write(row, index);
  }

  draw() {
    const [first, last] = this.inView();
    const from = Math.max(0, first - AROUND);
    const to = Math.min(this.count - 1, last + AROUND);
    for (const [index, row] of this.rows) if (index < from || index > to) this.retire(index, row);
    for (let index = to; index >= from; index--) {
      if (this.rows.has(index)) continue;
      const row = this.spare.pop() ?? el("div", { role: this.role });
      this.rows.set(index, row);
      this.write(row, index);
      this.area.insertBefore(row, this.rows.get(index + 1) ?? null); // in the order in which they are read
    }
    this.ended = this.count > 0 && this.atEnd(); // whoever looks at the end goes on doing so when the room changes
    if (this.count) this.drawn(Math.min(from, this.count - 1), to); // also those around the view, which are read too
  }

  write(row, index) {
    setStyle(row, { transform: `translateY(${index * this.height}px)`, height: `${this.height}px` });
    row.id = `${this.host.id}-${index}`;
    if (this.role === "row") {
      row.setAttribute("aria-rowindex", index + 1);
    } else {
      row.setAttribute("aria-posinset", index + 1);
      row.setAttribute("aria-setsize", this.count);
    }
    this.fill(row, index);
  }

  retire(index, row) {
    this.rows.delete(index);
    row.remove();
    this.spare.push(row);
  }

  inView() {
    return [Math.floor(this.top / this.height), Math.floor((this.top + Math.max(this.view, 1) - 1) / this.height)];
  }

  // Bring a row into view, with some of what stands around it; into the middle if it is far.
  reveal(index) {
    const row = index * this.height;
    const around = Math.min(2 * this.height, this.view / 4);
    const [highest, lowest] = [row - around, row + this.height + around - this.view];
    if (this.top > highest)
      this.scrollTo(this.top - highest > 2 * this.view ? row - (this.view - this.height) / 2 : highest);
    else if (this.top < lowest)
      this.scrollTo(lowest - this.top > 2 * this.view ? row - (this.view - this.height) / 2 : lowest);
  }

  scrollTo(top) {
    const within = Math.round(Math.min(this.lowest, Math.max(0, top)));
    if (within !== this.top) {
      this.top = within;
      this.host.scrollTop = within;
    }
    this.draw();
  }

  toEnd() {
    this.scrollTo(this.lowest);
  }

  atEnd() {
    return this.top >= this.lowest - this.height;
  }

  // As far down as one can scroll.
  get lowest() {
    return Math.max(0, this.count * this.height - this.view);
  }

  get perPage() {
    return Math.max(1, Math.floor(this.view / this.height) - 1);
  }
}

// Pages of a long list, fetched where one looks and kept: the most recently used stay.
export class Pages {
  // fetchPage(n, signal) gives the items of page n; `arrived(n)` is told; `failed(error)` too.
  constructor({ length, most = 60, fetchPage, arrived, failed }) {
    Object.assign(this, { length, most, fetchPage, arrived, failed });
    this.pages = new Map(); // page → items
    this.under = new Map(); // page → AbortController
    this.wanted = [];
    this.timer = null;
  }

  at(index) {
    return this.pages.get(Math.floor(index / this.length))?.[index % this.length];
  }

  // Whoever scrolls fast passes many pages by: only where he rests is fetched.
  want(first, last, { now = false } = {}) {
    const from = Math.floor(first / this.length);
    const to = Math.floor(last / this.length);
    this.wanted = [];
    for (let page = from; page <= to; page++) if (!this.pages.has(page)) this.wanted.push(page);
    for (const [page, control] of this.under) if (page < from - 1 || page > to + 1) this.abort(page, control);
    clearTimeout(this.timer);
    if (!this.wanted.length) return;
    if (now) this.fetch();
    else this.timer = setTimeout(() => this.fetch(), 50);
  }

  // What is given up may be wanted again before its request has ended.
  abort(page, control) {
    control.abort();
    this.under.delete(page);
  }

  async fetch() {
    await Promise.all(this.wanted.filter((page) => !this.under.has(page)).map((page) => this.fetchOne(page)));
  }

  async fetchOne(page) {
    const control = new AbortController();
    this.under.set(page, control);
    try {
      const items = await this.fetchPage(page, control.signal);
      if (control.signal.aborted) return;
      this.pages.delete(page);
      this.pages.set(page, items);
      for (const old of this.pages.keys()) {
        if (this.pages.size <= this.most) break;
        this.pages.delete(old);
      }
      this.arrived(page, items);
    } catch (error) {
      if (!control.signal.aborted) this.failed(error, page);
    } finally {
      if (this.under.get(page) === control) this.under.delete(page);
    }
  }

  // Items from `index` on are to be fetched again; until then the old ones are shown.
  forget(index = 0) {
    const first = Math.floor(index / this.length);
    for (const page of [...this.pages.keys()]) if (page >= first) this.pages.delete(page);
  }

  clear() {
    clearTimeout(this.timer);
    for (const control of this.under.values()) control.abort();
    this.under.clear();
    this.pages.clear();
  }
}
