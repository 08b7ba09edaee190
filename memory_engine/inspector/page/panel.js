// The tabs beside the timeline: what the chosen point, or two of them, look like from one side.

import { byId, el, empty, failure, loading } from "./dom.js";
import { place, TAB_KEYS } from "./place.js";
import { isAbort } from "./server.js";

const KEPT = 40; // answers: what was true at a seq stays true
const BURST_MS = 120;

// A tab: {id, title, key(look), nothing(look), load(look, signal), show(body, data, look), controls?(bar, again),
// follows?(look)}. `key` names what is to be shown; null: there is nothing, and `nothing` says why.
export class Panel {
  constructor(tabs, look) {
    this.tabs = tabs;
    this.look = () => ({ ...look(), again: () => this.refresh() }); // {thread, seq, mark, chunk, head, …}
    this.answers = new Map();
    this.control = null;
    this.under = null; // what is being loaded
    this.last = 0;
    const strip = byId("tabs");
    const room = byId("panels");
    this.views = new Map(
      tabs.map((tab) => {
        const button = el(
          "button",
          {
            type: "button",
            role: "tab",
            id: `tab-${tab.id}`,
            "aria-controls": `panel-${tab.id}`,
            title: `${tab.title} (${TAB_KEYS[tab.id]})`,
            onclick: () => place.go({ tab: tab.id }),
          },
          tab.title,
          el("kbd", { text: TAB_KEYS[tab.id], "aria-hidden": "true" }),
        );
        const bar = el("div", { class: "controls" });
        const body = el("div", { class: "body" });
        const panel = el(
          "div",
          { role: "tabpanel", id: `panel-${tab.id}`, "aria-labelledby": `tab-${tab.id}`, tabindex: 0 },
          bar,
          body,
        );
        tab.controls?.(bar, () => this.refresh());
        strip.append(button);
        room.append(panel);
        return [tab.id, { tab, button, bar, body, panel, shown: undefined }];
      }),
    );
    strip.addEventListener("keydown", (event) => this.key(event));
    this.choose();
  }

  get current() {
    return this.views.get(place.tab);
  }

  choose() {
    for (const [id, { button, panel }] of this.views) {
      const chosen = id === place.tab;
      button.setAttribute("aria-selected", chosen);
      button.tabIndex = chosen ? 0 : -1;
      panel.hidden = !chosen;
    }
    const { button } = this.current;
    button.scrollIntoView({ block: "nearest", inline: "nearest" });
    clearTimeout(this.timer);
    this.load();
  }

  // What is to be shown now: the view, what its tab looks at, the key and its name among the answers; whether it is too
  // early to ask, since the log's end is not known yet.
  get wanted() {
    const view = this.current;
    const look = this.look();
    const key = look.thread || view.tab.always ? view.tab.key(look) : null;
    const early = look.opening && !view.tab.always;
    return { view, look, key, name: `${view.tab.id}|${view.tab.always ? "" : look.thread}|${key}`, early };
  }

  // Show what is to be shown now. While one runs through the log, only where he pauses is asked for.
  refresh() {
    clearTimeout(this.timer);
    const { view, look, name, early } = this.wanted;
    view.tab.follows?.(look);
    if (view.shown !== name) view.panel.setAttribute("aria-busy", "true");
    if (early) return;
    const now = performance.now();
    const wait = now - this.last < BURST_MS ? BURST_MS : 0;
    this.last = now;
    if (wait) this.timer = setTimeout(() => this.load(), wait);
    else this.load();
  }

  async load() {
    const { view, look, key, name, early } = this.wanted;
    view.tab.follows?.(look);
    if (view.shown === name) view.panel.removeAttribute("aria-busy");
    if (view.shown === name || this.under === name) return;
    if (early) {
      view.panel.setAttribute("aria-busy", "true");
      return;
    }
    this.control?.abort();
    const control = (this.control = new AbortController());
    if (key === null) {
      view.shown = name;
      this.under = null;
      view.panel.removeAttribute("aria-busy");
      view.bar.hidden = !look.thread;
      view.body.replaceChildren(empty(look.thread ? view.tab.nothing(look) : "Choose a thread on the left"));
      return;
    }
    view.bar.hidden = false;
    view.shown = undefined;
    this.under = name;
    const slow = setTimeout(() => this.wait(view), 150);
    view.panel.setAttribute("aria-busy", "true");
    try {
      const data = this.answers.get(name) ?? (await view.tab.load(look, control.signal));
      if (control.signal.aborted) return;
      this.keep(name, data);
      view.body.classList.remove("stale");
      view.tab.show(view.body, data, look);
      if (!view.tab.stays) view.panel.scrollTop = 0;
      view.shown = name;
    } catch (error) {
      if (isAbort(error) || control.signal.aborted) return;
      view.body.classList.remove("stale");
      view.body.replaceChildren(
        failure(error, () => {
          view.body.replaceChildren(loading());
          this.load();
        }),
      );
    } finally {
      clearTimeout(slow);
      if (!control.signal.aborted) {
        if (this.wanted.name === name) view.panel.removeAttribute("aria-busy");
        this.under = null;
      }
    }
  }

  wait(view) {
    if (view.body.childElementCount) view.body.classList.add("stale");
    else view.body.replaceChildren(loading());
  }

  keep(name, data) {
    this.answers.delete(name);
    this.answers.set(name, data);
    if (this.answers.size > KEPT) this.answers.delete(this.answers.keys().next().value);
  }

  // What was kept may be told anew: the log has grown, or somebody asks for it.
  forget(id) {
    for (const name of [...this.answers.keys()]) if (name.startsWith(`${id}|`)) this.answers.delete(name);
    this.views.get(id).shown = undefined;
  }

  key(event) {
    const ids = this.tabs.map((tab) => tab.id);
    const at = ids.indexOf(place.tab);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: ids.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    place.go({ tab: ids[(to + ids.length) % ids.length] });
    this.current.button.focus();
  }
}
