"""What a verification found: the first place where a log, its reducers and what derives from it disagree."""

import msgspec

_SAID = {
    "gap": "a gap in the log",
    "operations": "operations differ",
    "reducer": "the reducer fails",
    "undecodable": "cannot be decoded",
    "state": "rows of the state differ",
    "projection": "rows of a view differ",
    "snapshot": "a snapshot differs",
    "search": "the search index differs",
}


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where the log, its reducers and what derives from it disagree.

    `kind`: `gap`, `hash`, `operations` (the reducers give others now), `reducer` (they raise), `undecodable`, `head`,
    `state` (live rows), `projection` (rows of a view), `snapshot` (of a state or a view, for reading the past) or
    `search` (the index of passages).

    `reducer` names the reducers that may do otherwise, or the view. `expected` is what is recorded, `found` what a
    replay gives or what went wrong; `difference` says it in lines: `chunk 5.0 content: 'Hello' → 'Hi'`.
    """

    thread_id: str
    seq: int
    kind: str
    event_id: str = ""
    event_type: str = ""
    reducer: str = ""
    expected: str = ""
    found: str = ""
    difference: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Where it is and what it is, in a line."""
        facts = [self.event_type, f"reducer {self.reducer}" if self.reducer and self.event_type else self.reducer]
        at = f" ({', '.join(filter(None, facts))})" if any(facts) else ""
        return f"thread {self.thread_id!r}, seq {self.seq}{at}: {_SAID.get(self.kind, f'{self.kind} differs')}"

    @property
    def lines(self) -> tuple[str, ...]:
        """What differs, or went wrong."""
        if self.difference or self.kind == "hash":
            return self.difference
        return (self.found,) if self.found else ()

    def __str__(self) -> str:
        more = f" (and {len(self.lines) - 1} lines more)" if len(self.lines) > 1 else ""
        return f"{self.title}: {self.lines[0]}{more}" if self.lines else self.title

    def as_data(self) -> dict[str, object]:
        """Plain JSON values."""
        return {**msgspec.structs.asdict(self), "difference": list(self.difference)}


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a verification saw. `events` were checked; the log holds together if there is no divergence.

    `redacted` of them are without their texts: only that they stand where they stood can be checked, and that what
    they did fits.
    """

    thread_id: str
    events: int
    head_seq: int
    head_hash: str
    divergence: Divergence | None = None
    redacted: int = 0

    @property
    def ok(self) -> bool:
        """Whether everything agreed."""
        return self.divergence is None

    def as_data(self) -> dict[str, object]:
        """Plain JSON values."""
        found = self.divergence.as_data() if self.divergence is not None else None
        return {**msgspec.structs.asdict(self), "ok": self.ok, "divergence": found}
