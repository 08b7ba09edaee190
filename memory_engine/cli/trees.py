"""Explanations as trees of lines."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from attrs import frozen

from memory_engine.cli.terminal import Terminal
from memory_engine.cli.text import columns, counted, number, one_line
from memory_engine.replay.explanations.explanation import Why

SHOWN = 12
"""Of a node's children of a kind, so many are shown."""
TEXT = 30
"""Columns that are spared for what a node says."""
SHOWS = "shows"
"""How a block is related to the chunk that it shows."""
_STYLES = {"context": "bold", "block": "cyan", "passage": "blue", "compaction": "yellow", "fact": "blue", "row": "bold"}


@frozen
class TreePrinter:
    """Prints trees down to a depth (`None`: all of it), of long lists the first only unless `whole`."""

    terminal: Terminal
    depth: int | None = None
    whole: bool = False

    def put(self, node: Why) -> None:
        """Print a node and what is below it."""
        for guide, line in self._lines(node, None, ("", ""), 0):
            self.terminal.put(self.terminal.styled(guide, "dim") + line)

    def _lines(self, node: Why, over: Why | None, guides: tuple[str, str], level: int) -> Iterator[tuple[str, str]]:
        """The lines of a node, each with what stands before it; `guides` stand before the node's own and the others."""
        guide, below = guides
        yield guide, self._line(node, over, self.terminal.width - columns(guide))
        children = _shown(node)
        if self.depth is not None and level >= self.depth:
            if children:
                yield f"{below}└─ ", self.terminal.styled(f"… {counted(len(children), 'node')} below", "dim")
            return
        listed = self._listed(children)
        for n, child in enumerate(listed):
            branch, trunk = ("└─ ", "   ") if n == len(listed) - 1 else ("├─ ", "│  ")
            if isinstance(child, Why):
                yield from self._lines(child, node, (below + branch, below + trunk), level + 1)
            else:
                yield below + branch, self.terminal.styled(f"… {number(child)} more", "dim")

    def _listed(self, children: Sequence[Why]) -> list[Why | int]:
        """The children; of many of a kind the first, and how many more there are."""
        listed: list[Why | int] = []
        for _, some in groupby(children, key=lambda child: (child.kind, child.facts.get("relation"))):
            alike = list(some)
            room = len(alike) if self.whole or len(alike) <= SHOWN + 1 else SHOWN
            listed += alike[:room]
            if room < len(alike):
                listed.append(len(alike) - room)
        return listed

    def _line(self, node: Why, over: Why | None, width: int) -> str:
        relation = node.facts.get("relation")
        title = one_line(f"{relation}: {node.title}" if relation else node.title, width)
        spared = TEXT if node.text else 0
        facts = one_line(" · ".join(self._facts(node, over)), max(0, width - columns(title) - 2 - spared))
        room = width - columns(title) - columns(facts) - 4
        said = one_line(node.text, room) if room > 10 and not node.facts.get("above") else ""
        parts = [self.terminal.styled(title, _STYLES.get(node.kind, "green")), self.terminal.styled(facts, "dim"), said]
        return "  ".join(part for part in parts if part)

    def _facts(self, node: Why, over: Why | None) -> Iterator[str]:
        facts = node.facts
        behind = next((child for child in node.children if child.facts.get("relation") == SHOWS), None)
        if behind is not None:  # its line says what that of its chunk would say
            facts = {**behind.facts, **facts}
        if facts.get("above") and node.kind != "block":
            yield "see above"
            return
        if node.seq and (node.kind == "chunk" or behind is not None):
            yield f"event {node.seq}"
        if isinstance(at := facts.get("at"), str):
            yield f"{datetime.fromisoformat(at):%Y-%m-%d %H:%M}"
        if isinstance(tokens := facts.get("tokens"), int) and tokens:
            yield counted(tokens, "token")
        yield from _said(facts, over.seq if over is not None and over.kind == "compaction" else 0)


def _said(facts: Mapping[str, object], compacted_at: int) -> Iterator[str]:
    """What facts say of a node's standing; a compaction's own line says what became of what it covers."""
    for name in ("pinned", "shortened", "redacted"):
        if facts.get(name):
            yield name
    match facts.get("forgotten"):
        case {"seq": seq, "reason": reason}:
            yield f"forgotten by event {seq}" + (f" ({reason})" if reason else "")
        case True:
            yield "forgotten"
    match facts:
        case {"live": True}:
            yield "live"
        case {"removed_by": {"seq": seq, "type": kind}} if seq != compacted_at:
            instead = facts.get("replaced_by")
            by = f", {' '.join(map(str, instead[:3]))} in its place" if isinstance(instead, list) else ""
            yield f"gone with event {seq} ({kind}){by}"
    match facts:
        case {"tokens_before": before, "tokens_after": after}:
            yield f"{before} → {after} tokens"
    if isinstance(cost := facts.get("cost_usd"), float) and cost:
        yield f"${cost:.4f}"
    for name, text in (("cites", "cites"), ("covered_by", "covered by")):
        if isinstance(ids := facts.get(name), list) and ids:
            yield f"{text} {' '.join(map(str, ids))}"
    for name in ("cut", "missing", "hidden"):
        if isinstance(said := facts.get(name), str):
            yield said


def _shown(node: Why) -> list[Why]:
    """The children that get lines: not the chunk of a block, nor the event of a chunk with nothing more behind it."""
    shown: list[Why] = []
    for child in node.children:
        if child.facts.get("relation") == SHOWS:
            shown += _shown(child)
        elif not (node.kind == "chunk" and child.kind == "event" and child.seq == node.seq and not child.children):
            shown.append(child)
    return shown
