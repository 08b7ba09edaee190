// How a row of the timeline looks.

import { clock, el, icon, moment, number, oneLine, setStyle, signed, visible } from "./dom.js";

// A letter beside the colour: nothing is told by colour alone.
const GLYPHS = { user: "U", assistant: "A", tool: "T", system: "S", compaction: "C", memory: "M", other: "·" };

const glyph = (role) => {
  const known = role in GLYPHS ? role : "other";
  return el("span", { class: `glyph ${known}`, text: GLYPHS[known], title: known, "aria-hidden": "true" });
};

export function eventRow(row, event, facts) {
  row.className = "event";
  row.classList.toggle("later", facts.later);
  row.classList.toggle("marked", Boolean(facts.marked));
  row.classList.toggle("broken", Boolean(event?.broken));
  row.classList.toggle("taken-back", Boolean(facts.takenBack));
  row.dataset.seq = facts.seq;
  setStyle(row, { "padding-left": "0" });
  row.setAttribute("aria-level", 1);
  row.setAttribute("aria-selected", facts.chosen);
  const folds = facts.compaction?.status === "completed" || facts.compaction?.status === "undone";
  if (folds) row.setAttribute("aria-expanded", facts.open);
  else row.removeAttribute("aria-expanded");
  const cells = [el("span", { role: "gridcell", class: "seq", text: number(facts.seq) })];
  if (!event) {
    row.removeAttribute("title");
    row.replaceChildren(...cells, el("span", { role: "gridcell", class: "ghost", "aria-label": "Loading" }));
    return;
  }
  row.title = `${moment(event.at)}\n${oneLine(event.said, 200)}`;
  cells.push(
    el(
      "span",
      { role: "gridcell", class: "what" },
      folds ? toggle(facts.open) : glyph(event.role),
      el("span", { class: "type", text: oneLine(event.type, 60) }),
    ),
    el("span", { role: "gridcell", class: "said", dir: "auto" }, ...said(event, facts)),
    el("span", { role: "gridcell", class: "signs" }, ...signs(event, facts)),
    el("span", { role: "gridcell", class: "time", text: clock(event.at) }),
  );
  row.replaceChildren(...cells);
}

function toggle(open) {
  const button = el("button", {
    type: "button",
    class: "fold-toggle",
    tabindex: -1,
    "aria-label": open ? "Close the fold" : "Open the fold: show the originals",
  });
  button.textContent = open ? "▾" : "▸";
  return button;
}

function said(event, { compaction, needle }) {
  if (compaction && !needle && ["completed", "undone"].includes(compaction.status)) {
    const [before, after] = compaction.tokens;
    const undone = compaction.status === "undone" ? " · undone" : "";
    return [
      `${number(compaction.covers)} chunks folded · ${number(before)} → ${number(after)} tokens · ${oneLine(compaction.compactor, 40)}${undone}`,
    ];
  }
  return highlighted(oneLine(event.said, 260), needle);
}

function highlighted(text, needle) {
  const at = needle ? text.toLowerCase().indexOf(needle.toLowerCase()) : -1;
  if (at < 0) return [text];
  return [text.slice(0, at), el("mark", { text: text.slice(at, at + needle.length) }), text.slice(at + needle.length)];
}

function quarantined({ source, by, since, reason }) {
  return `Quarantined since ${since}${by ? ` by ${by}` : ""}: ${source}${reason ? ` (${reason})` : ""}`;
}

function signs(event, { forks, marked, takenBack, quarantine }) {
  const found = [];
  if (quarantine) found.push(el("span", { class: "badge", text: "⊘", title: quarantined(quarantine) }));
  else if (takenBack) found.push(el("span", { class: "badge", text: "↩", title: "Taken back by a rewind" }));
  if (event.broken) found.push(el("span", { class: "badge strong", text: "!", title: "This event cannot be read" }));
  if (marked) found.push(el("span", { class: "badge strong", text: "A", title: "Marked: the first point of a diff" }));
  if (forks) {
    const names = forks.map((id) => oneLine(id, 60)).join(", ");
    const mark = el("button", {
      type: "button",
      class: "fork-mark",
      tabindex: -1,
      title: `Forked here: ${names}`,
      "aria-label": `Forked here: ${names}`,
    });
    mark.append(icon("fork"), forks.length > 1 ? String(forks.length) : "");
    found.push(mark);
  }
  if (event.tokens)
    found.push(
      el("span", {
        class: "tokens",
        text: signed(event.tokens),
        title: `${number(event.tokens)} tokens in its new chunks`,
      }),
    );
  return found;
}

// A row below an open compaction: a chunk that its summary stands for, or a note.
export function originalRow(row, seq, line, active) {
  row.className = "event original";
  row.classList.toggle("active", active);
  row.dataset.seq = seq;
  row.setAttribute("aria-level", line.level);
  row.setAttribute("aria-selected", active);
  row.removeAttribute("aria-expanded");
  row.removeAttribute("title");
  if (line.note) {
    row.replaceChildren(el("span", { role: "gridcell", class: "note", text: visible(line.note) }));
    indent(row, line);
    return;
  }
  const { chunk } = line;
  const folds = chunk.type === "compacted";
  if (folds) row.setAttribute("aria-expanded", Boolean(line.open));
  row.title = `Original ${chunk.id}: show where it comes from`;
  const calls = (chunk.calls ?? []).map((call) => `${call.name}(${call.arguments})`).join(" ");
  row.replaceChildren(
    el("span", { role: "gridcell", class: "seq", text: chunk.id }),
    el(
      "span",
      { role: "gridcell", class: "what" },
      folds && toggle(line.open),
      el("span", { class: "type", text: oneLine(chunk.type, 60) }),
    ),
    el("span", { role: "gridcell", class: "said", text: oneLine(`${chunk.text} ${calls}`, 260), dir: "auto" }),
    el("span", { role: "gridcell", class: "signs" }, el("span", { class: "tokens", text: number(chunk.tokens) })),
    el("span", { role: "gridcell", class: "time" }),
  );
  indent(row, line);
}

const indent = (row, { level }) => setStyle(row, { "padding-left": `${Math.min(8, level - 1) * 16}px` });
