"""What a search gives: hits, and how they were found."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import overload

import msgspec
from attrs import frozen

KINDS = (
    "message", "tool", "task", "note", "snippet", "memory", "preference", "playbook", "agent_md", "document", "pattern",
    "summary",
)  # fmt: skip
"""What passages of the embedded events are. Events of one's own may bring others."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A passage that was found. What a search gives is recalled: nothing is learned from it a second time.

    `text` is the passage: the `n`-th (from 0) of the event `event_id` at `seq` of the thread. `kind` says what it
    is (see `KINDS`), `role` and `speaker` who said it, `at` when (where nothing says when it happened: when it was
    recorded). `about` is the title or heading it stands under. `score` is from 0 to 1 within its search; `why` names
    the signals that it mostly rests on, `parts`, where they were asked for, what each has added. `key` names what
    the passage belongs to ("preference:verbosity", "document:<id>:…"). `likeness` is the model's cosine of question
    and passage, where both have a vector. `alike` are ids of events that say the same and were left out.
    """

    text: str
    kind: str
    role: str
    speaker: str
    at: datetime
    thread_id: str
    seq: int
    n: int
    event_id: str
    event_type: str
    score: float
    why: str
    parts: Mapping[str, float] = {}
    key: str = ""
    about: str = ""
    likeness: float | None = None
    alike: tuple[str, ...] = ()
    recalled: bool = True

    @property
    def sources(self) -> tuple[str, ...]:
        """Ids of the events that say this."""
        return (self.event_id, *self.alike)

    def rendered(self) -> str:
        """The passage with its date and speaker, as it is embedded and put before a model."""
        return rendered(self.text, speaker=self.speaker or self.role, about=self.about, at=self.at)


@frozen(kw_only=True)
class Found(Sequence[Hit]):
    """Hits, best first.

    `how` is "hybrid" where a model's vectors took part, else "lexical". `failure` says why they did not although
    there is an embedder (or why a re-ranker's judgement is missing); `waiting` passages had no vector yet.
    """

    query: str
    hits: tuple[Hit, ...] = ()
    how: str = "lexical"
    failure: str = ""
    waiting: int = 0

    @overload
    def __getitem__(self, at: int) -> Hit: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, at: int | slice) -> Hit | tuple[Hit, ...]:
        """A hit, or some of them."""
        return self.hits[at]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)


def rendered(text: str, *, speaker: str, about: str, at: datetime) -> str:
    """A passage's text after its date, speaker and title: what is found is as much when and who as what."""
    who = f"{speaker}: " if speaker else ""
    title = f"{about}: " if about else ""
    return f"[{at.day} {at:%B} {at.year}] {who}{title}{text}"
