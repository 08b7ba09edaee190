// Markdown as elements. Text goes in through text nodes, so that nothing that a log says is ever markup; a link leads to
// http or https only, and a picture is shown only where its bytes stand in the text: the page asks no other host.

import { el, oneLine, visible } from "./dom.js";

const INLINE_MOST = 8000; // characters of one paragraph that are read for marks
const DEEPEST = 6;
const MARKS = { "**": "strong", __: "strong", "~~": "del", "*": "em", _: "em" };
const SPECIAL = /[`*_~[!\\]|https?:\/\//g;
const PICTURE = /^data:image\/(?:png|jpe?g|gif|webp|avif);base64,/i;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)#*\s*$/;
const RULE = /^ {0,3}(?:-\s*){3,}$|^ {0,3}(?:\*\s*){3,}$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

// A picture of a data: URL; of any other address a link, if it can be one.
export function image(url, alt = "") {
  const said = oneLine(alt, 200);
  if (PICTURE.test(url)) return el("img", { class: "picture-small", src: url, alt: said || "image", title: said || null });
  return link(url, `image: ${said || "elsewhere"}`);
}

export function link(url, text = url) {
  const address = webAddress(url);
  if (!address) return el("span", { class: "dim", text: `[${visible(text)}]`, title: oneLine(url, 300) || null });
  return el("a", {
    href: address,
    target: "_blank",
    rel: "noopener noreferrer",
    title: oneLine(address, 300),
    text: visible(text),
  });
}

function webAddress(url) {
  try {
    const parsed = new URL(url);
    return ["http:", "https:"].includes(parsed.protocol) ? parsed.href : null;
  } catch {
    return null;
  }
}

export function markdown(text) {
  return el("div", { class: "markdown", dir: "auto" }, ...blocks(String(text).split(/\r?\n/), 0));
}

function blocks(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    const [made, next] = block(lines, at, depth);
    if (made) found.push(made);
    at = next;
  }
  return found;
}

// The block that begins at a line, and the line after it.
function block(lines, at, depth) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  const fence = line.match(FENCE);
  if (fence) return fenced(lines, at, fence[1], fence[2]);
  const heading = line.match(HEADING);
  if (heading) return [el("p", { class: "heading-line", role: "heading", "aria-level": Math.min(6, heading[1].length + 2) }, ...inline(heading[2])), at + 1];
  if (RULE.test(line)) return [el("hr"), at + 1];
  if (line.includes("|") && DIVIDER.test(lines[at + 1] ?? "") && lines[at + 1].includes("-")) return table(lines, at);
  if (depth < DEEPEST && /^ {0,3}>/.test(line)) return quoted(lines, at, depth);
  if (depth < DEEPEST && ITEM.test(line)) return listed(lines, at, depth);
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !begins(lines[end])) end++;
  return [el("p", {}, ...inline(lines.slice(at, end).join("\n"))), end];
}

const begins = (line) => FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || /^ {0,3}>/.test(line) || RULE.test(line);

function fenced(lines, at, mark, language) {
  let end = at + 1;
  while (end < lines.length && !lines[end].trimStart().startsWith(mark)) end++;
  const code = el("pre", { dir: "ltr", text: visible(lines.slice(at + 1, end).join("\n")) });
  if (language) code.setAttribute("aria-label", `code, ${oneLine(language, 30)}`);
  return [code, end + 1];
}

function quoted(lines, at, depth) {
  let end = at;
  while (end < lines.length && /^ {0,3}>/.test(lines[end])) end++;
  const inner = lines.slice(at, end).map((line) => line.replace(/^ {0,3}> ?/, ""));
  return [el("blockquote", {}, ...blocks(inner, depth + 1)), end];
}

// Items of one indent; what stands further in belongs to the item before it.
function listed(lines, at, depth) {
  const [, indent, sign] = lines[at].match(ITEM);
  const ordered = /\d/.test(sign);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const item = lines[end].match(ITEM);
    if (item && item[1].length <= indent.length + 1) {
      if (/\d/.test(item[2]) !== ordered || item[1].length < indent.length) break;
      items.push([item[3]]);
    } else if (items.length && /^\s{2,}\S/.test(lines[end])) {
      items.at(-1).push(lines[end].slice(indent.length + 2));
    } else if (!(lines[end].trim() === "" && /^\s{2,}\S|^\s*(?:[-*+]|\d+[.)])\s/.test(lines[end + 1] ?? ""))) {
      break;
    }
    end++;
  }
  const made = items.map((inner) => el("li", {}, ...tight(blocks(inner, depth + 1))));
  const start = ordered ? Number.parseInt(sign, 10) : null;
  return [el(ordered ? "ol" : "ul", { start: start === 1 ? null : start }, ...made), end];
}

// A paragraph that is all that an item begins with stands in its line.
const tight = ([first, ...rest]) => (first?.tagName === "P" && !first.className ? [...first.childNodes, ...rest] : first ? [first, ...rest] : []);

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|");

function table(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end++;
  const row = (line, tag) => el("tr", {}, ...cells(line).map((cell) => el(tag, {}, ...inline(cell.trim()))));
  const body = lines.slice(at + 2, end).map((line) => row(line, "td"));
  const made = el("table", {}, el("thead", {}, row(lines[at], "th")), el("tbody", {}, ...body));
  return [el("div", { class: "wide" }, made), end];
}

// ---- within a paragraph

function inline(text, depth = 0) {
  if (text.length > INLINE_MOST || depth > DEEPEST) return [visible(text)];
  const found = [];
  let plain = 0;
  let next = 0;
  for (;;) {
    SPECIAL.lastIndex = next;
    const special = SPECIAL.exec(text);
    if (!special) break;
    const piece = marked(text, special.index, depth);
    if (piece) {
      if (special.index > plain) found.push(visible(text.slice(plain, special.index)));
      found.push(piece.made);
      plain = next = piece.end;
    } else {
      next = special.index + 1;
    }
  }
  if (plain < text.length) found.push(visible(text.slice(plain)));
  return found;
}

// What a mark at a place makes, and where it ends; null: it is a character like others.
function marked(text, at, depth) {
  switch (text[at]) {
    case "\\":
      return /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "") ? { made: text[at + 1], end: at + 2 } : null;
    case "`":
      return code(text, at);
    case "!":
      return text[at + 1] === "[" ? linked(text, at + 1, (label, url) => image(url, label)) : null;
    case "[":
      return linked(text, at, (label, url) => link(url, label));
    case "h":
      return bare(text, at);
    default:
      return emphasised(text, at, depth);
  }
}

function code(text, at) {
  let from = at;
  while (text[from] === "`") from++;
  const mark = text.slice(at, from);
  const end = text.indexOf(mark, from);
  return end < 0 ? null : { made: el("code", { text: visible(text.slice(from, end)) }), end: end + mark.length };
}

function linked(text, at, make) {
  const middle = text.indexOf("](", at);
  const end = middle < 0 ? -1 : text.indexOf(")", middle);
  if (end < 0 || text.slice(at + 1, middle).includes("[")) return null;
  const [url = ""] = text.slice(middle + 2, end).trim().split(/\s+/);
  if (!webAddress(url) && !PICTURE.test(url)) return null; // it stays as it was written
  return { made: make(text.slice(at + 1, middle), url), end: end + 1 };
}

function bare(text, at) {
  const [url] = text.slice(at).match(/^[^\s<>"'`)\]]+/);
  const whole = url.replace(/[.,;:!?*_~]+$/, "");
  return webAddress(whole) ? { made: link(whole), end: at + whole.length } : null;
}

function emphasised(text, at, depth) {
  const mark = [text.slice(at, at + 2), text[at]].find((one) => one in MARKS);
  if (!mark || /^\s?$/.test(text[at + mark.length] ?? "")) return null;
  if (mark[0] === "_" && /\w/.test(text[at - 1] ?? "")) return null; // snake_case is a word
  const end = text.indexOf(mark, at + mark.length + 1);
  if (end < 0 || /\s/.test(text[end - 1]) || (mark[0] === "_" && /\w/.test(text[end + mark.length] ?? ""))) return null;
  return { made: el(MARKS[mark], {}, ...inline(text.slice(at + mark.length, end), depth + 1)), end: end + mark.length };
}
