// The borders between the columns can be pulled, by mouse or by arrow keys; their places are remembered.

import { setStyle } from "./dom.js";

const REMEMBERED = "memory-engine.columns";
const LEAST = 180;
const STEP = 24;

export function splitters() {
  const room = document.getElementById("window");
  let widths = {};
  // What a screen reader says of a border: how wide its column is.
  const told = () => {
    for (const bar of document.querySelectorAll("[role=separator]")) {
      bar.setAttribute("aria-valuemin", LEAST);
      bar.setAttribute("aria-valuemax", Math.max(LEAST, room.clientWidth - 2 * LEAST));
      bar.setAttribute("aria-valuenow", document.getElementById(bar.getAttribute("aria-controls")).clientWidth);
    }
  };
  new ResizeObserver(told).observe(room);
  try {
    widths = JSON.parse(localStorage.getItem(REMEMBERED) ?? "{}");
  } catch {
    // nothing is remembered
  }
  const set = (name, width) => {
    const most = room.clientWidth - 2 * LEAST;
    widths[name] = Math.round(Math.min(most, Math.max(LEAST, width)));
    setStyle(room, { [`--${name}`]: `${widths[name]}px` });
    told();
    try {
      localStorage.setItem(REMEMBERED, JSON.stringify(widths));
    } catch {
      // it holds until the page is closed
    }
  };
  for (const [name, width] of Object.entries(widths)) if (Number.isFinite(width)) set(name, width);
  for (const bar of document.querySelectorAll("[role=separator]")) {
    const name = bar.dataset.column; // the column whose width it sets: "left" or "right"
    const way = name === "left" ? 1 : -1;
    const column = document.getElementById(bar.getAttribute("aria-controls"));
    bar.addEventListener("pointerdown", (event) => {
      const [from, width] = [event.clientX, column.clientWidth];
      bar.setPointerCapture(event.pointerId);
      const move = ({ clientX }) => set(name, width + way * (clientX - from));
      bar.addEventListener("pointermove", move);
      bar.addEventListener("pointerup", () => bar.removeEventListener("pointermove", move), { once: true });
    });
    bar.addEventListener("keydown", (event) => {
      const by = { ArrowRight: STEP, ArrowLeft: -STEP }[event.key];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      set(name, column.clientWidth + way * by);
    });
  }
}
