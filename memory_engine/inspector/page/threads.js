// The threads of the store: a list to filter, to search, and to choose from.

import { ago, byId, counted, day, el, failure, number, oneLine } from "./dom.js";
import { place } from "./place.js";
import { get } from "./server.js";
import { Pages, VirtualList } from "./virtual.js";

const PAGE = 200;
const HEIGHT = 50;

export class Threads {
  // opened(thread as data) hears which thread was chosen here.
  constructor(opened) {
    this.opened = opened;
    this.total = null;
    this.active = -1; // the row that the arrow keys are on
    this.shown = new WeakMap(); // row → thread: what is clicked is what is seen, also while the list is fetched anew
    this.host = byId("threads");
    this.note = byId("threads-note");
    this.search = byId("threads-search");
    this.kind = byId("threads-kind");
    this.status = byId("threads-status");
    this.pages = new Pages({
      length: PAGE,
      fetchPage: (page, signal) => this.fetch(page, signal),
      arrived: () => this.list.refresh(),
      failed: (error) => this.fail(error),
    });
    this.list = new VirtualList(this.host, {
      height: HEIGHT,
      fill: (row, index) => this.fill(row, index),
      drawn: (first, last) => this.pages.want(first, last),
    });
    this.loading = Promise.resolve(); // the list as it was asked for last: keys act on that one, however fast they come
    let pause = 0;
    const reload = () => {
      clearTimeout(pause);
      pause = 0;
      this.loading = this.reload();
    };
    this.search.addEventListener("input", () => {
      clearTimeout(pause);
      pause = setTimeout(reload, 150);
    });
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "Enter") {
        event.preventDefault();
        if (pause) reload();
        this.host.focus();
        this.loading.then(() => this.move(0));
      }
    });
    this.kind.addEventListener("change", reload);
    this.status.addEventListener("change", reload);
    this.host.addEventListener("keydown", (event) => this.key(event));
    this.host.addEventListener("click", (event) => {
      const row = event.target.closest("[role=option]");
      if (row) this.open(Number(row.dataset.index), this.shown.get(row));
    });
    place.addEventListener("change", ({ detail }) => detail.has("thread") && this.list.refresh());
  }

  async reload() {
    this.active = -1;
    this.list.scrollTo(0);
    this.pages.clear();
    await this.again();
  }

  // The same view, with what is new in the store.
  async again() {
    const [first] = this.list.inView();
    await this.pages.fetchOne(Math.floor(first / PAGE));
  }

  async fetch(page, signal) {
    const asked = { q: this.search.value.trim(), kind: this.kind.value, status: this.status.value };
    const found = await get("threads", { ...asked, offset: page * PAGE, limit: PAGE }, signal);
    offer(this.kind, "Any kind", found.kinds);
    offer(this.status, "Any status", found.statuses);
    if (this.total !== null && found.total !== this.total) this.pages.forget();
    this.total = found.total;
    const filtered = asked.q || asked.kind || asked.status;
    this.note.replaceChildren(
      found.total
        ? `${counted(found.total, "thread")}${filtered ? " match" : ""}`
        : filtered
          ? "No thread matches"
          : "No thread yet",
    );
    if (this.list.count !== found.total) {
      this.list.count = found.total;
      queueMicrotask(() => this.list.resize(found.total));
    }
    return found.threads;
  }

  fail(error) {
    this.note.replaceChildren(failure(error, () => this.reload()));
  }

  fill(row, index) {
    const thread = this.pages.at(index);
    this.shown.set(row, thread);
    row.dataset.index = index;
    row.className = "thread";
    row.setAttribute("aria-selected", Boolean(thread) && thread.id === place.thread);
    row.classList.toggle("active", index === this.active);
    if (!thread) {
      row.replaceChildren(el("span", { class: "ghost" }));
      row.setAttribute("aria-label", "Loading");
      return;
    }
    row.removeAttribute("aria-label");
    const whose = [thread.user_id, thread.tenant_id, thread.agent_id].filter(Boolean).map((name) => oneLine(name, 40));
    row.title = `${oneLine(thread.id, 200)}\nmade ${day(thread.created_at)} UTC\nlast event ${day(thread.updated_at)} UTC`;
    row.replaceChildren(
      el(
        "div",
        { class: "thread-line" },
        el("span", { class: "thread-name", text: oneLine(thread.id, 120), dir: "ltr" }),
        thread.forked_from && el("span", { class: "badge", text: "fork" }),
        thread.damaged.length > 0 && el("span", { class: "badge strong", text: "damaged" }),
        thread.status !== "active" && el("span", { class: "badge strong", text: thread.status }),
        el("span", { class: "dim count", text: ago(thread.updated_at) }),
      ),
      el(
        "div",
        { class: "thread-line dim" },
        el("span", {
          class: "thread-kind",
          text:
            thread.kind === "conversation"
              ? whose.join(" · ") || day(thread.created_at).slice(0, 10)
              : [oneLine(thread.kind, 30), ...whose].join(" · "),
        }),
        el("span", { class: "count", text: counted(thread.events, "event") }),
        el("span", { class: "count", text: `${number(thread.tokens)} tok` }),
      ),
    );
  }

  open(index, thread = this.pages.at(index)) {
    if (!thread) return;
    this.active = index;
    this.list.refresh();
    this.opened(thread);
  }

  key(event) {
    const steps = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: this.list.perPage,
      PageUp: -this.list.perPage,
      Home: -Infinity,
      End: Infinity,
    };
    if (event.key in steps) this.loading.then(() => this.move(steps[event.key]));
    else if (event.key === "Enter" || event.key === " ") this.loading.then(() => this.open(this.active));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  move(by) {
    if (!this.list.count) return;
    this.active = Math.min(this.list.count - 1, Math.max(0, Math.max(this.active, 0) + by));
    this.list.reveal(this.active);
    this.list.refresh();
    this.host.setAttribute("aria-activedescendant", `${this.host.id}-${this.active}`);
  }
}

function offer(select, all, names) {
  const wanted = JSON.stringify(names);
  if (select.dataset.names === wanted) return;
  const chosen = select.value;
  select.dataset.names = wanted;
  select.replaceChildren(
    el("option", { value: "", text: all }),
    ...names.map((name) => el("option", { value: name, text: oneLine(name, 40) })),
  );
  select.value = names.includes(chosen) ? chosen : "";
}
