// A tree of boxes as a picture: the root at the left, what is behind it to the right. Much is folded into "+12".

import { counted, cut, el, oneLine, svg } from "./dom.js";

const WIDE = 168;
const HIGH = 46;
const ACROSS = 26;
const DOWN = 10;
const FEW = 6; // of one kind of children so many are shown all
const SHOWN = 4; // of more, so many; the others are folded
const ASIDE = new Set(["line"]); // kinds that are shown only when they are asked for: they say what the summary says
const BOXES = 60; // with more than this the deeper ones wait until they are asked for

// What is to be drawn of a tree: nodes {item, children, hidden, folded}. `folded` stands for several items.
function planned(root, opened) {
  let room = BOXES;
  const make = (item) => ({ item, children: [], hidden: 0 });
  const top = make(root);
  const waiting = [top];
  while (waiting.length) {
    const node = waiting.shift();
    const kids = node.item.children ?? [];
    if (!kids.length) continue;
    if (room <= 0 && !opened.has(node.item)) {
      node.hidden = kids.length;
      continue;
    }
    for (const some of byKind(kids)) {
      const few = ASIDE.has(some[0].kind) ? 0 : some.length <= FEW ? some.length : SHOWN;
      const shown = opened.has(some[0]) ? some.length : few;
      for (const kid of some.slice(0, shown)) node.children.push(make(kid));
      if (shown < some.length) node.children.push({ folded: some, from: shown, children: [], hidden: 0 });
    }
    room -= node.children.length;
    waiting.push(...node.children.filter((child) => child.item));
  }
  return top;
}

// The children, those of a kind together; what stands aside comes last.
function byKind(kids) {
  const groups = new Map();
  for (const kid of kids) groups.set(kid.kind, [...(groups.get(kid.kind) ?? []), kid]);
  return [...groups.values()].sort((a, b) => ASIDE.has(a[0].kind) - ASIDE.has(b[0].kind));
}

// Leaves stand below each other; a parent stands in the middle of its children.
function placed(node, depth, cursor) {
  node.x = depth * (WIDE + ACROSS);
  cursor.depth = Math.max(cursor.depth, depth);
  if (!node.children.length) {
    node.y = cursor.y;
    cursor.y += HIGH + DOWN;
    return;
  }
  for (const child of node.children) placed(child, depth + 1, cursor);
  node.y = (node.children[0].y + node.children.at(-1).y) / 2;
}

export class Picture {
  // chosen(item) hears which box was chosen.
  constructor(root, chosen) {
    this.root = root;
    this.chosen = chosen;
    this.selected = root;
    this.opened = new Set();
    this.scale = 1;
    this.frame = el("div", { class: "picture", tabindex: -1 });
    const button = (text, name, by) =>
      el("button", { type: "button", text, "aria-label": name, title: name, onclick: () => this.zoom(by) });
    this.bar = el(
      "div",
      { class: "picture-bar" },
      button("−", "Smaller", 0.8),
      button("+", "Larger", 1.25),
      button("fit", "Fit the width", 0),
    );
    this.isZoomed = false; // by hand: then it stays so
    this.draggable();
    this.draw();
    new ResizeObserver(() => this.isZoomed || this.settle()).observe(this.frame);
  }

  draw() {
    const top = planned(this.root, this.opened);
    const cursor = { y: 4, depth: 0 };
    placed(top, 0, cursor);
    this.width = (cursor.depth + 1) * (WIDE + ACROSS) - ACROSS + 28;
    this.height = cursor.y + 4;
    const edges = svg("g", { class: "edges" });
    const boxes = svg("g", {});
    const walk = (node) => {
      boxes.append(node.folded ? this.more(node) : this.box(node));
      for (const child of node.children) {
        edges.append(edge(node, child));
        walk(child);
      }
    };
    walk(top);
    this.canvas = svg(
      "svg",
      { viewBox: `-4 0 ${this.width} ${this.height}`, role: "group", "aria-label": "Lineage" },
      edges,
      boxes,
    );
    this.frame.replaceChildren(this.canvas);
    this.size();
    if (this.frame.isConnected) this.shorten();
  }

  // Cut the texts to their boxes; how wide they are is known once they stand in the page.
  shorten() {
    const room = WIDE - 16;
    for (const text of this.canvas.querySelectorAll(".box:not(.folded) text:not(.hidden-count)")) {
      const width = text.getComputedTextLength();
      if (width <= room) continue;
      let length = Math.floor((text.textContent.length * room) / width);
      while (length > 1 && text.getSubStringLength(0, length) > room - 10) length--;
      text.textContent = cut(text.textContent, length + 1);
    }
  }

  box(node) {
    const { item } = node;
    const says = oneLine(item.text, 90);
    const title = oneLine(item.title || item.id, 80);
    const lines = inTwo(title);
    const group = svg(
      "g",
      {
        class: `box ${item.kind}`,
        transform: `translate(${node.x} ${node.y})`,
        tabindex: 0,
        role: "button",
        "aria-pressed": item === this.selected,
        "aria-label": `${item.kind} ${oneLine(item.id, 60)}: ${title}`,
      },
      svg("rect", { width: WIDE, height: HIGH, rx: 6 }),
      svg("text", { x: 9, y: 19, class: "box-title", text: says ? title : lines[0] }),
      svg("text", { x: 9, y: 35, class: says ? "box-text" : "box-title", text: says || lines[1] }),
      svg("title", { text: `${oneLine(item.title, 120)}\n${says}` }),
    );
    const choose = () => {
      this.selected = item;
      for (const other of this.canvas.querySelectorAll(".box[aria-pressed=true]"))
        other.setAttribute("aria-pressed", "false");
      group.setAttribute("aria-pressed", "true");
      if (node.hidden) this.reopen(item);
      this.chosen(item);
    };
    group.addEventListener("click", choose);
    pressed(group, choose);
    if (node.hidden)
      group.append(svg("text", { x: WIDE + 6, y: HIGH / 2 + 4, class: "hidden-count", text: `+${node.hidden}` }));
    return group;
  }

  more({ folded, from, x, y }) {
    const count = folded.length - from;
    const what = counted(count, folded[0].kind);
    const group = svg(
      "g",
      {
        class: "box folded",
        transform: `translate(${x} ${y})`,
        tabindex: 0,
        role: "button",
        "aria-label": `Show ${from ? `${what} more` : what}`,
      },
      svg("rect", { width: WIDE, height: HIGH, rx: 6 }),
      svg("text", { x: WIDE / 2, y: HIGH / 2 + 5, "text-anchor": "middle", class: "box-title", text: `+${what}` }),
    );
    const open = () => this.reopen(folded[0]);
    group.addEventListener("click", open);
    pressed(group, open);
    return group;
  }

  // Draw it with more of it open, and stay where one is.
  reopen(what) {
    this.opened.add(what);
    const { scrollLeft, scrollTop } = this.frame;
    this.draw();
    this.frame.scrollTo(scrollLeft, scrollTop);
    this.canvas.querySelector(".box[aria-pressed=true]")?.focus({ preventScroll: true });
  }

  zoom(by) {
    this.isZoomed = true;
    this.scale = by ? Math.min(2.5, Math.max(0.2, this.scale * by)) : this.fitting(0.2);
    this.size();
  }

  // Once it stands in the page: all of its width, as long as it can be read.
  settle() {
    if (!this.frame.isConnected) return;
    this.shorten();
    this.scale = this.fitting(0.7);
    this.size();
  }

  fitting(least) {
    return Math.max(least, Math.min(1, (this.frame.clientWidth - 14) / this.width));
  }

  size() {
    this.canvas.setAttribute("width", Math.round(this.width * this.scale));
    this.canvas.setAttribute("height", Math.round(this.height * this.scale));
  }

  // Pull the picture about, as a map.
  draggable() {
    let from = null;
    this.frame.addEventListener("pointerdown", (event) => {
      if (event.button || event.target.closest(".box")) return;
      from = { x: event.clientX + this.frame.scrollLeft, y: event.clientY + this.frame.scrollTop };
      this.frame.setPointerCapture(event.pointerId);
    });
    this.frame.addEventListener(
      "pointermove",
      (event) => from && this.frame.scrollTo(from.x - event.clientX, from.y - event.clientY),
    );
    for (const end of ["pointerup", "pointercancel"]) this.frame.addEventListener(end, () => (from = null));
    this.frame.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        this.zoom(event.deltaY < 0 ? 1.1 : 0.9);
      },
      { passive: false },
    );
  }
}

// A text over two lines, broken at a space near its middle.
function inTwo(text) {
  if (text.length < 22) return [text, ""];
  const at = text.lastIndexOf(" ", Math.max(21, text.length / 2 + 4));
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function edge(from, to) {
  const [x1, y1, x2, y2] = [from.x + WIDE, from.y + HIGH / 2, to.x, to.y + HIGH / 2];
  const bend = ACROSS / 2;
  return svg("path", { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` });
}

function pressed(element, act) {
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
}
