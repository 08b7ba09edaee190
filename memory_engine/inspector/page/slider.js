// The whole log as one line: a slider over seq, with marks where compactions, forks and the marked point are.

import { byId, clock, el, number, oneLine, setStyle } from "./dom.js";
import { place } from "./place.js";

const APART_PX = 6; // marks that would stand nearer to each other fall together: thousands of them, or few on a narrow page

export class Slider {
  constructor(timeline) {
    this.timeline = timeline;
    this.range = byId("slider");
    this.marks = byId("slider-marks");
    this.field = byId("slider-seq");
    this.range.addEventListener("input", () => place.go({ seq: Number(this.range.value) }));
    this.field.addEventListener("change", () => {
      const seq = Math.floor(Number(this.field.value));
      if (Number.isFinite(seq)) place.go({ seq: Math.min(timeline.head, Math.max(0, seq)) });
      this.draw();
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.field.value = place.seq ?? timeline.head; // what was typed is no place to go to
    });
    byId("compaction-before").addEventListener("click", () => timeline.toCompaction(-1));
    byId("compaction-after").addEventListener("click", () => timeline.toCompaction(1));
    place.addEventListener("change", ({ detail }) => {
      if (detail.has("mark")) this.mark();
      if (detail.has("seq")) this.draw();
    });
    new ResizeObserver(() => this.mark()).observe(this.marks);
    timeline.addEventListener("head", () => (this.draw(), this.mark()));
    timeline.addEventListener("rows", () => this.draw());
  }

  draw() {
    const { head, thread } = this.timeline;
    const seq = place.seq ?? head;
    this.range.max = head;
    this.range.value = seq;
    this.range.disabled = this.field.disabled = !thread;
    this.field.max = head;
    if (document.activeElement !== this.field) this.field.value = thread ? seq : "";
    byId("slider-head").textContent = thread ? `of ${number(head)}` : "";
    const event = seq ? this.timeline.event(seq) : null;
    const said = event ? `${oneLine(event.type, 60)}, ${clock(event.at)}` : seq ? "" : "before the first event";
    this.range.setAttribute("aria-valuetext", `event ${number(seq)} of ${number(head)}${said ? `, ${said}` : ""}`);
    byId("slider-said").textContent = thread ? said : "";
  }

  mark() {
    const { head, outline, thread } = this.timeline;
    this.marks.replaceChildren();
    if (!head || !outline) return;
    const bins = new Map();
    const count = Math.max(1, Math.floor(this.marks.clientWidth / APART_PX));
    const put = (kind, seq, text) => {
      const bin = Math.round((seq / head) * count);
      const known = bins.get(`${kind}${bin}`) ?? { kind, seq, bin, texts: [] };
      known.texts.push(text);
      bins.set(`${kind}${bin}`, known);
    };
    for (const { seq, status, covers } of outline.compactions) {
      if (seq)
        put(
          status === "failed" || status === "abandoned" ? "failed" : "folded",
          seq,
          `compaction at ${number(seq)}: ${status === "completed" ? `${number(covers)} chunks folded` : status}`,
        );
    }
    for (const { seq, thread_id: id } of outline.forks)
      put("forked", seq, `forked at ${number(seq)}: ${oneLine(id, 60)}`);
    if (place.mark?.thread === thread) put("marked", place.mark.seq, `A: marked at ${number(place.mark.seq)}`);
    for (const { kind, seq, bin, texts } of bins.values()) {
      const mark = el("span", {
        class: `mark ${kind}${texts.length > 1 ? " many" : ""}`,
        title: texts.length > 3 ? `${texts[0]} … ${texts.length} in all` : texts.join("\n"),
      });
      setStyle(mark, { left: `${texts.length > 1 ? (100 * bin) / count : (100 * seq) / head}%` });
      this.marks.append(mark);
    }
  }
}
