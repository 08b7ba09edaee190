// A view as one HTML file for a bug report: what the tab shows, without scripts, and nothing in it comes from elsewhere.

import { byId, el, moment, number, oneLine, say } from "./dom.js";
import { place } from "./place.js";

const KEPT = new Set("a article b blockquote br code dd del details div dl dt em footer h1 h2 h3 h4 h5 h6 header hr i img kbd li mark ol p pre s section small span strong sub summary sup svg g path rect circle line text title table tbody td th thead tr ul".split(" "));
const ATTRIBUTES = new Set("class dir open role title alt colspan rowspan start viewBox preserveAspectRatio width height d x y x1 x2 y1 y2 cx cy r rx ry points text-anchor transform".split(" "));
const FORBIDS = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

// Keep what a tab shows. `panel` is its element; `tab.whole` brings what is not in view.
export async function save(panel, tab) {
  const { title } = tab;
  const done = await tab.whole?.();
  for (const one of panel.querySelectorAll("details")) one.make?.(); // what is folded is kept too
  const styles = await Promise.all(["style.css", "details.css"].map(async (name) => (await fetch(name)).text()));
  const made = el("div", { class: "saved-page" }, head(title), copied(panel));
  done?.();
  const file = new Blob([written(made, title, styles.join("\n"))], { type: "text/html" });
  const link = el("a", { href: URL.createObjectURL(file), download: named() });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  say("Saved as one HTML file");
}

function head(title) {
  const store = byId("store-path").textContent;
  const said = [place.thread && `thread ${oneLine(place.thread, 200)}`, place.seq !== null && `event ${number(place.seq)}`, store && `of ${store}`, `saved ${moment(new Date().toISOString())}`];
  return el("header", { class: "saved-head" }, el("h1", { text: `${title}, memory engine` }), el("p", { class: "dim", text: said.filter(Boolean).join(" · ") }));
}

// A copy of elements that are known to be harmless; a field becomes its text, a button what it says.
function copied(node) {
  if (node.nodeType === Node.TEXT_NODE) return node.cloneNode();
  const tag = node.localName;
  if (["input", "select", "textarea"].includes(tag)) return el("span", { class: "badge", text: shown(node) });
  if (tag === "button" && (node.matches(".copy") || node.hidden)) return el("span", {});
  const ours = KEPT.has(tag) ? document.createElementNS(node.namespaceURI, tag) : el(tag === "button" ? "span" : "div", {});
  for (const { name, value } of node.attributes) if (ATTRIBUTES.has(name)) ours.setAttribute(name, value);
  for (const property of node.style) ours.style.setProperty(property, node.style.getPropertyValue(property));
  if (tag === "a" && /^https?:/.test(node.getAttribute("href") ?? "")) ours.setAttribute("href", node.getAttribute("href"));
  if (tag === "img" && (node.getAttribute("src") ?? "").startsWith("data:image/")) ours.setAttribute("src", node.getAttribute("src"));
  if (node.hidden) return ours;
  for (const child of node.childNodes) if (child.nodeType === Node.TEXT_NODE || child.nodeType === Node.ELEMENT_NODE) ours.append(copied(child));
  return ours;
}

function shown(field) {
  if (field.type === "checkbox") return field.checked ? "yes" : "no";
  return field.selectedOptions?.[0]?.text ?? (field.value || field.placeholder);
}

function written(made, title, style) {
  const text = (element) => new XMLSerializer().serializeToString(element);
  const theme = document.documentElement.dataset.theme;
  return [
    `<!doctype html>\n<html lang="en"${theme ? ` data-theme="${theme === "dark" ? "dark" : "light"}"` : ""}>\n<head>\n<meta charset="utf-8">`,
    `<meta http-equiv="Content-Security-Policy" content="${FORBIDS}">`,
    `<meta name="viewport" content="width=device-width, initial-scale=1">`,
    text(el("title", { text: `${title} – ${oneLine(place.thread, 80)}` })),
    `<style>\n${style}</style>\n</head>\n<body class="saved">`,
    text(made),
    "</body>\n</html>\n",
  ].join("\n");
}

function named() {
  const part = (text) => text.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60);
  return `${["memory", part(place.thread), place.seq ?? "", place.tab].filter((one) => one !== "").join("-")}.html`;
}
