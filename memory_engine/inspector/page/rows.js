// What stands at which row of the timeline: events by seq, and below an open compaction its originals.

export class Rows {
  constructor() {
    this.clear();
  }

  clear() {
    this.head = 0;
    this.folds = []; // open compactions {seq, lines}, by seq; a line is {chunk, level, open} or {note, level}
  }

  get count() {
    return this.head + this.folds.reduce((sum, fold) => sum + fold.lines.length, 0);
  }

  // {seq} of an event's row, {fold, line} of a row below an open compaction.
  at(index) {
    let place = index;
    for (const fold of this.folds) {
      if (place < fold.seq) break;
      if (place < fold.seq + fold.lines.length) return { fold, line: fold.lines[place - fold.seq] };
      place -= fold.lines.length;
    }
    return { seq: place + 1 };
  }

  indexOf(seq) {
    const above = this.folds.filter((fold) => fold.seq < seq);
    return seq - 1 + above.reduce((sum, fold) => sum + fold.lines.length, 0);
  }

  fold(seq) {
    return this.folds.find((fold) => fold.seq === seq);
  }

  open(seq, lines) {
    this.close(seq);
    this.folds.push({ seq, lines });
    this.folds.sort((a, b) => a.seq - b.seq);
  }

  // Put lines under one of a fold's (a summary among the originals), in place of those that stand there.
  openLine(fold, line, lines) {
    this.closeLine(fold, line);
    line.open = true;
    fold.lines.splice(fold.lines.indexOf(line) + 1, 0, ...lines);
  }

  closeLine(fold, line) {
    line.open = false;
    const first = fold.lines.indexOf(line) + 1;
    let end = first;
    while (end < fold.lines.length && fold.lines[end].level > line.level) end++;
    fold.lines.splice(first, end - first);
  }

  close(seq) {
    this.folds = this.folds.filter((fold) => fold.seq !== seq);
  }
}
