// JSON as a person reads it: values by colour, objects and lists that fold, a button that copies all of it.

import { copyButton, cut, el, number, prose, visible } from "./dom.js";

const OPEN_DEPTH = 2; // deeper ones are closed at first, unless all of it is short
const OPEN_LENGTH = 40; // and longer ones
const SHORT = 2500;
const SHOWN = 200; // members at a time

// A value, or a text that may be JSON. `most`: characters of one string that are shown until one asks for the rest.
export function json(given, { most = 4000, chars = null } = {}) {
  const value = typeof given === "string" ? parsed(given) : given;
  if (value === null || typeof value !== "object")
    return prose(typeof given === "string" ? given : JSON.stringify(given), { mono: true, most, chars });
  const box = el("div", { class: "json mono", dir: "ltr" });
  const depth = JSON.stringify(value).length < SHORT ? -10 : 0;
  box.append(copyButton(() => JSON.stringify(value, null, 2), "JSON"), node("", value, depth, most));
  return box;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function node(name, given, depth, most) {
  const key = name === "" ? "" : el("span", { class: "key", text: visible(name) });
  const inner = typeof given === "string" && /^[{[]/.test(given) ? parsed(given) : null; // JSON in a text, as of arguments
  const value = inner && typeof inner === "object" ? inner : given;
  if (value === null || typeof value !== "object") return el("div", { class: "leaf" }, key, leaf(value, most));
  const members = Array.isArray(value) ? value.map((one, n) => [String(n), one]) : Object.entries(value);
  const [begin, end] = Array.isArray(value) ? "[]" : "{}";
  if (!members.length) return el("div", { class: "leaf" }, key, el("span", { class: "dim", text: begin + end }));
  const inside = el("div", { class: "inside" });
  const glanced = el("span", { class: "glance dim" });
  const box = el(
    "details",
    { class: "node", open: depth < OPEN_DEPTH && members.length <= OPEN_LENGTH },
    el("summary", {}, key, el("span", { class: "dim", text: `${begin} ${number(members.length)} ${end}${value === given ? "" : " as text"}` }), glanced),
    inside,
  );
  box.make = () => {
    box.make = () => {};
    fill(inside, members, 0, depth, most);
  };
  const look = () => {
    glanced.textContent = box.open ? "" : glance(value);
    if (box.open) box.make();
  };
  box.addEventListener("toggle", look);
  look();
  return box;
}

function fill(inside, members, from, depth, most) {
  inside.append(...members.slice(from, from + SHOWN).map(([name, one]) => node(name, one, depth + 1, most)));
  const left = members.length - from - SHOWN;
  if (left <= 0) return;
  const more = el("button", { type: "button", class: "link", text: `Show ${number(Math.min(SHOWN, left))} more of ${number(left)}` });
  more.addEventListener("click", () => {
    more.remove();
    fill(inside, members, from + SHOWN, depth, most);
  });
  inside.append(more);
}

// What is in a fold, as long as it is closed.
const glance = (value) => visible(cut(JSON.stringify(value).slice(0, 400), 80));

function leaf(value, most) {
  const kind = value === null ? "null" : typeof value;
  const said = JSON.stringify(value);
  const shown = el("span", { class: `value ${kind}`, text: visible(said.length > most ? `${said.slice(0, most)}…` : said) });
  if (said.length <= most) return shown;
  const more = el("button", { type: "button", class: "link", text: `Show all ${number(value.length)} characters` });
  more.addEventListener("click", () => {
    shown.textContent = visible(said);
    more.remove();
  });
  return el("span", {}, shown, " ", more);
}
