"""A node of an explanation."""

from collections.abc import Iterator, Mapping
from typing import Literal

from attrs import field, frozen

Kind = Literal["context", "block", "passage", "row", "chunk", "compaction", "line", "fact", "event"]
"""What a node stands for. Blocks and passages stand under a context, lines under a compaction."""


@frozen(kw_only=True)
class Why:
    """A chunk, an event or the like, and under `children` what it comes from.

    `title` says in a few words what it is, `text` what it says, whole. `facts` are JSON values by name: `relation` to
    the node above, `at` (ISO time), `tokens`, `live`, and what else its kind has. A node that stands further up in the
    tree already comes again with `above` and without children; where a tree is cut, `cut` says how to go on.
    """

    kind: Kind
    id: str
    thread_id: str
    seq: int
    title: str
    text: str = field(default="", repr=False)
    facts: Mapping[str, object] = field(factory=dict, repr=False)
    children: "tuple[Why, ...]" = field(default=(), repr=False)

    def walk(self) -> Iterator["Why"]:
        """This node and all below it, each before its children."""
        waiting: list[Why] = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children)

    def events(self) -> list[tuple[str, int]]:
        """The events that it all comes from: thread and seq, each once, in the order of the tree."""
        found = [(node.thread_id, node.seq) for node in self.walk() if node.kind in ("event", "compaction")]
        return [place for place in dict.fromkeys(found) if place[1]]

    def as_data(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "kind": self.kind,
            "id": self.id,
            "thread_id": self.thread_id,
            "seq": self.seq,
            "title": self.title,
            "text": self.text,
            "facts": dict(self.facts),
            "children": [child.as_data() for child in self.children],
        }
