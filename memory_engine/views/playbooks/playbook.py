"""A playbook: a recipe that worked, stored and read."""

import msgspec
from msgspec.structs import replace

from memory_engine.core.codec import encode_json
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, RowOrigin, Rows
from memory_engine.views.playbooks.events import PlaybookCall, PlaybookRemoved, PlaybookSaved, playbook_id

VALUE_CHARS_MAX = 200
LINE_CHARS_MAX = 400
TEXT_BYTES_MAX = 4_000
"""The most bytes that a playbook takes of a scratchpad: from then on it is in every context."""


class PlaybookSource(RowOrigin, frozen=True, omit_defaults=True):
    """One success of a recipe."""

    seq: int
    event_id: str
    user_query: str
    outcome: str = ""
    reason: str = ""


class Playbook(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recipe that worked: for which flow, with which slots, through which calls, and each time it did.

    `id` is derived from flow, slots and calls: equal recipes are one playbook.
    """

    id: str
    flow_dact: str
    slots: dict[str, object]
    tool_calls: tuple[PlaybookCall, ...]
    times: tuple[PlaybookSource, ...]

    @property
    def count(self) -> int:
        """How often it worked."""
        return len(self.times)

    @property
    def user_query(self) -> str:
        """The last request that it answered."""
        return self.times[-1].user_query

    @property
    def outcome(self) -> str:
        """The last recorded outcome."""
        return next((time.outcome for time in reversed(self.times) if time.outcome), "")

    @property
    def seq(self) -> int:
        """The seq of the last success, in the user's thread."""
        return self.times[-1].seq

    @property
    def text(self) -> str:
        """The playbook as text for a model: deterministic, at most `TEXT_BYTES_MAX` bytes."""
        lines = [f"Playbook for the flow {self.flow_dact}: it worked {_times(self.count)} for this user."]
        lines.append(f"Request: {_one_line(self.user_query)}")
        if self.slots:
            lines.append(
                "Slots: " + ", ".join(f"{_one_line(k)} = {_short_json(v)}" for k, v in sorted(self.slots.items()))
            )
        for n, call in enumerate(self.tool_calls, 1):
            parameters = ", ".join(f"{_one_line(k)}={_short_json(v)}" for k, v in sorted(call.parameters.items()))
            lines.append(f"Step {n}: {_one_line(call.tool_id)}({parameters})")
        if self.outcome:
            lines.append(f"Outcome: {_one_line(self.outcome)}")
        text = "\n".join(lines).encode("utf-8", "replace")
        return text[:TEXT_BYTES_MAX].decode(errors="ignore")


class PlaybooksFold:
    """A user's playbooks, by id."""

    name = "playbooks"
    version = 1
    mode: ProjectionMode = "inline"
    row = Playbook
    events: tuple[type[Event], ...] = (PlaybookSaved, PlaybookRemoved, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[Playbook], event: RecordedEvent) -> None:
        """Add a time that a recipe worked; remove or forget."""
        match event.event:
            case PlaybookSaved() as saved:
                key = playbook_id(saved.flow_dact, saved.slots, saved.tool_calls)
                known = rows.get(key)
                time = PlaybookSource(
                    seq=event.seq,
                    event_id=event.id,
                    user_query=saved.user_query,
                    outcome=saved.outcome,
                    reason=saved.reason,
                    source_thread=saved.source_thread,
                    sources=saved.sources,
                )
                times = (*known.times, time) if known is not None else (time,)
                rows.put(key, Playbook(key, saved.flow_dact, saved.slots, saved.tool_calls, times))
            case PlaybookRemoved(playbook_id=key):
                rows.drop(key)
            case MemoryForget(seqs=seqs) if seqs:
                _drop_forgotten_times(rows, frozenset(seqs))


def _drop_forgotten_times(rows: Rows[Playbook], seqs: frozenset[int]) -> None:
    for key, playbook in list(rows.items()):
        kept = tuple(time for time in playbook.times if time.seq not in seqs)
        if not kept:
            rows.drop(key)
        elif len(kept) < playbook.count:
            rows.put(key, replace(playbook, times=kept))


PLAYBOOKS = PlaybooksFold()


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _one_line(text: str) -> str:
    short = " ".join(text.split())
    return short if len(short) <= LINE_CHARS_MAX else short[:LINE_CHARS_MAX] + "…"


def _short_json(value: object) -> str:
    encoded = encode_json(value).decode()
    return encoded if len(encoded) <= VALUE_CHARS_MAX else encoded[:VALUE_CHARS_MAX] + "…"
