// Elements, and text that is safe to look at. Content goes into the page through text nodes only.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.setAttribute("class", value);
    else if (name === "text") element.textContent = value;
    else if (name === "style") setStyle(element, value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "hidden") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// The policy of the page forbids style attributes; properties set from a script are allowed.
export function setStyle(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
}

export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export const byId = (id) => document.getElementById(id);

// ---- text

const TURNS = "\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff";
const HOSTILE = new RegExp(`[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f${TURNS}\\ud800-\\udfff]`, "gu");

function writtenOut(character) {
  const code = character.codePointAt(0);
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

// What would turn text around or is not to be seen is written out, as the command line does.
export const visible = (text) => String(text).replace(HOSTILE, writtenOut);

export const oneLine = (text, most = 300) =>
  visible(
    String(text)
      .slice(0, most * 4)
      .replace(/\s+/gu, " ")
      .trim(),
  ).slice(0, most);

export const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

const grouped = new Intl.NumberFormat("en-US"); // made once: it is slow to make

export const number = (value) => (value === null || value === undefined ? "–" : grouped.format(value));

export const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

export function size(bytes) {
  let amount = bytes;
  for (const unit of ["bytes", "kB", "MB"]) {
    if (amount < 1000)
      return `${amount.toLocaleString("en-US", { maximumFractionDigits: unit === "bytes" ? 0 : 1 })} ${unit}`;
    amount /= 1000;
  }
  return `${amount.toLocaleString("en-US", { maximumFractionDigits: 1 })} GB`;
}

export const signed = (value) => (value > 0 ? `+${number(value)}` : value < 0 ? `−${number(-value)}` : "±0");

// Times are UTC, as everywhere in this project.
export const clock = (iso) => (iso ? new Date(iso).toISOString().slice(11, 19) : "");
export const moment = (iso) => (iso ? new Date(iso).toISOString().replace("T", " ").slice(0, 23) + " UTC" : "–");
export const day = (iso) => (iso ? new Date(iso).toISOString().slice(0, 16).replace("T", " ") : "–");

// How long ago something was, in the largest unit that is whole: "3 h ago".
export function ago(iso, now = Date.now()) {
  const seconds = Math.max(0, (now - new Date(iso)) / 1000);
  for (const [unit, length] of [["y", 31_557_600], ["d", 86_400], ["h", 3600], ["min", 60]])
    if (seconds >= length) return `${number(Math.floor(seconds / length))} ${unit} ago`;
  return "just now";
}

// How long something took, from microseconds, in two units at most: "340 ms", "4.2 s", "3 min 5 s".
export function lasting(us) {
  if (us < 1000) return us ? `${(us / 1000).toFixed(1)} ms` : "0 ms";
  if (us < 999_500) return `${Math.round(us / 1000)} ms`;
  if (us < 59_950_000) return `${(us / 1e6).toFixed(1)} s`;
  const seconds = Math.round(us / 1e6);
  for (const [unit, length, lower, part] of [["d", 86_400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]])
    if (seconds >= length) {
      const rest = Math.floor((seconds % length) / part);
      return `${number(Math.floor(seconds / length))} ${unit}${rest ? ` ${rest} ${lower}` : ""}`;
    }
}

export const money = (usd) => (usd ? `$${usd.toFixed(usd < 1 ? 4 : 2)}` : "–");

// ---- pieces that every part of the page uses

const WHOLE = 8000;

// A block of text as it is: long text is cut, with a button that shows the rest.
export function prose(text, { most = WHOLE, mono = false, chars = null } = {}) {
  const whole = String(text ?? "");
  const length = Math.max(whole.length, chars ?? 0);
  const block = el("div", { class: mono ? "text mono" : "text", dir: mono ? "ltr" : "auto" });
  const shown = cutAtCharacter(whole, most);
  block.textContent = visible(shown);
  if (shown.length === length) return block;
  const rest = el("div", { class: "more" });
  if (shown.length < whole.length) {
    rest.append(
      el("button", {
        type: "button",
        class: "link",
        text: `Show all ${number(whole.length)} characters`,
        onclick: () => {
          block.textContent = visible(whole);
          rest.remove();
        },
      }),
    );
  } else {
    rest.append(
      el("span", { class: "dim", text: `the first ${number(whole.length)} of ${number(length)} characters` }),
    );
  }
  return el("div", {}, block, rest);
}

function cutAtCharacter(text, most) {
  if (text.length <= most) return text;
  const splits = text.charCodeAt(most - 1) >= 0xd800 && text.charCodeAt(most - 1) < 0xdc00;
  return text.slice(0, splits ? most - 1 : most);
}

// A button that puts a text on the clipboard; `text` may be a function that makes it.
export function copyButton(text, what = "id") {
  const button = el("button", {
    type: "button",
    class: "copy",
    title: `Copy this ${what}`,
    "aria-label": typeof text === "string" ? `Copy ${what} ${oneLine(text, 80)}` : `Copy this ${what}`,
  });
  button.append(icon("copy"));
  button.addEventListener("click", async (event) => {
    event.stopPropagation();
    const said = typeof text === "string" ? cut(oneLine(text, 80), 60) : `the ${what}`;
    say((await copied(typeof text === "string" ? text : text())) ? `Copied ${said}` : "The browser did not allow copying");
  });
  return button;
}

export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

export function ident(text, what = "id") {
  return el("span", { class: "ident" }, el("code", { text: visible(text), dir: "ltr" }), copyButton(text, what));
}

let silence;

// A short note at the foot of the window, read out by screen readers.
export function say(text) {
  const toast = byId("toast");
  toast.textContent = text;
  toast.classList.add("shown");
  clearTimeout(silence);
  silence = setTimeout(() => toast.classList.remove("shown"), 2200);
}

export const empty = (text, ...more) => el("div", { class: "empty" }, el("p", { text }), ...more);

export const loading = (text = "Loading…") => el("div", { class: "empty loading", role: "status" }, el("p", { text }));

export function failure(error, again) {
  const box = el("div", { class: "failure", role: "alert" });
  box.append(el("strong", { text: error.title ?? "That did not work" }), el("p", { text: visible(error.message) }));
  if (again) box.append(el("button", { type: "button", text: "Try again", onclick: again }));
  return box;
}

export const section = (title, ...children) => el("section", {}, el("h3", { text: title }), ...children);

// A table of texts; the first `names` columns are words, the others numbers.
export function table(label, heads, rows, names = 1) {
  const side = (n) => (n < names ? null : "num");
  return el(
    "div",
    { class: "wide" },
    el(
      "table",
      { class: "rows-table", "aria-label": label },
      el("thead", {}, el("tr", {}, ...heads.map((text, n) => el("th", { scope: "col", class: side(n), text })))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell, n) => el("td", { class: side(n) }, cell))))),
    ),
  );
}

const ICONS = {
  copy: "M5 5V2.5h8.5V11H11M2.5 5H11v8.5H2.5z",
  sun: "M8 5.2A2.8 2.8 0 1 1 8 10.8 2.8 2.8 0 0 1 8 5.2M8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.2 1.2M11.8 11.8 13 13M13 3l-1.2 1.2M4.2 11.8 3 13",
  moon: "M13.2 9.6A5.6 5.6 0 0 1 6.4 2.8a5.6 5.6 0 1 0 6.8 6.8z",
  auto: "M8 2.2a5.8 5.8 0 1 1 0 11.6A5.8 5.8 0 0 1 8 2.2M8 2.2v11.6M8 5h4.6M8 8h5.8M8 11h4.6",
  link: "M6.8 9.2a2.6 2.6 0 0 0 3.7 0l2.2-2.2a2.6 2.6 0 0 0-3.7-3.7L7.9 4.4M9.2 6.8a2.6 2.6 0 0 0-3.7 0L3.3 9a2.6 2.6 0 0 0 3.7 3.7l1.1-1.1",
  save: "M8 2v8M4.8 7 8 10.2 11.2 7M2.5 11.5V14h11v-2.5",
  fork: "M4 2.5v11M4 9.5c0-3 8-1.5 8-5M12 2.3v.2",
};

export function icon(name) {
  return svg(
    "svg",
    { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true", class: "icon" },
    svg("path", { d: ICONS[name] }),
  );
}
