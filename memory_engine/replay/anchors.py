"""Anchors: hashes of logs, kept out of reach of anyone who could rewrite a log.

A log that was rewritten whole still verifies, but its hashes differ from those written down before.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from memory_engine.core.arguments import PathLike
from memory_engine.core.bounded import read_file
from memory_engine.core.chain import check_hash
from memory_engine.core.clock import to_datetime, to_us
from memory_engine.core.json_form import JsonForm
from memory_engine.errors import IntegrityError, ThreadNotFound, UnreadableAnchors
from memory_engine.runtime.handle import PastHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.acts import Act
from memory_engine.store.new_file import file_errors
from memory_engine.store.protocol import ThreadFilter

DELETE = "delete"
"""The kind of the acts that delete threads."""
ANCHORS_BYTES_MAX = 1 << 28
"""A file of anchors is read whole: a million of them."""


class _Deleted(msgspec.Struct, frozen=True):
    """The threads of such an act's plan, each with the time when it was made."""

    threads: Mapping[str, int] = {}


class Anchor(JsonForm, msgspec.Struct, frozen=True):
    """The hash (in hexadecimal) of a thread's log at a seq: it covers everything recorded up to there.

    `recorded_at` is when the event at `seq` was recorded (UTC). At seq 0 there is neither.
    """

    thread_id: str
    seq: int
    hash: str
    recorded_at: datetime | None = None

    def as_data(self) -> dict[str, object]:
        """As plain JSON values: one line in a file of anchors."""
        found: dict[str, object] = msgspec.to_builtins(self)
        return found


class Contradicted(Anchor, frozen=True):
    """An anchor that the log here contradicts. `why`: its thread has since been deleted, by a recorded act.

    It is empty if no act explains it: this is not the log whose hash was kept.
    """

    why: str = ""

    def __eq__(self, other: object) -> bool:
        """Whether it is, or contradicts, the same anchor."""
        return isinstance(other, Anchor) and self._facts == (other.thread_id, other.seq, other.hash, other.recorded_at)

    def __hash__(self) -> int:
        return hash(self._facts)

    @property
    def _facts(self) -> tuple[str, int, str, datetime | None]:
        return self.thread_id, self.seq, self.hash, self.recorded_at


async def anchor(past: PastHandle) -> Anchor:
    """The anchor of a thread at a moment. Raises `IntegrityError` if the hash is not that of the event."""
    rows = await past.kernel.reader.rows_at(past.id, {past.seq})
    if past.seq not in rows:
        return Anchor(past.id, 0, "")
    stored = rows[past.seq]
    check_hash(past.id, stored)
    return Anchor(past.id, stored.seq, stored.hash.hex(), to_datetime(stored.recorded_at_us))


async def check_anchors(kernel: Kernel, anchors: Sequence[Anchor]) -> list[Contradicted]:
    """The anchors that the logs here contradict, in the order given, and why (see `StoreAdmin.check_anchors`).

    Recorded hashes are compared; `verify` checks that they are those of the events.
    """
    of_threads: dict[str, set[int]] = {}
    for one in anchors:
        of_threads.setdefault(one.thread_id, set()).add(one.seq)
    held = {thread_id: await _hashes(kernel, thread_id, seqs) for thread_id, seqs in of_threads.items()}
    found = [one for one in anchors if held[one.thread_id].get(one.seq) != one.hash]
    deleted = await _deletions(kernel) if found else {}
    return [
        Contradicted(one.thread_id, one.seq, one.hash, one.recorded_at, await _deletion_note(kernel, one, deleted))
        for one in found
    ]


async def _deletions(kernel: Kernel) -> dict[str, Act]:
    """The last act that deleted each thread, by the thread's id."""
    found: dict[str, Act] = {}
    for act in await kernel.store.acts():
        with suppress(msgspec.DecodeError):  # another kind of act, with another plan
            if act.kind == DELETE:
                found.update(dict.fromkeys(msgspec.json.decode(act.plan, type=_Deleted).threads, act))
    return found


async def _deletion_note(kernel: Kernel, one: Anchor, deleted: Mapping[str, Act]) -> str:
    """Why there is no such log any more: its thread was deleted after the anchor's event was recorded."""
    act = deleted.get(one.thread_id)
    if act is None or (one.recorded_at is not None and to_us(one.recorded_at) > act.asked_at_us):
        return ""
    when = f"deleted on {to_datetime(act.asked_at_us):%Y-%m-%d}" + (f" by {act.by}" if act.by else "")
    now = await kernel.store.threads(ThreadFilter(id=one.thread_id))
    if now and act.state != "done":
        return ""
    return f"{when}, another thread bears this id now" if now else when


async def _hashes(kernel: Kernel, thread_id: str, seqs: set[int]) -> dict[int, str]:
    """The hashes that the log of a thread has at these seqs; none where there is no such event."""
    try:
        await kernel.store.head(thread_id)
    except ThreadNotFound:
        return {}
    try:
        rows = list(await kernel.store.read_at(thread_id, sorted(seqs)))
    except IntegrityError:  # some are gone
        rows = []
        for seq in seqs:
            with suppress(IntegrityError):
                rows += await kernel.store.read_at(thread_id, [seq])
    return {0: "", **{stored.seq: stored.hash.hex() for stored in rows}}


def read_anchors(path: PathLike) -> list[Anchor]:
    """Anchors from a file of JSON lines; skips empty lines. Raises `UnreadableAnchors`."""
    found: list[Anchor] = []
    with file_errors(path):
        written = read_file(Path(path), limit=ANCHORS_BYTES_MAX)
    for number, line in enumerate(written.splitlines(), 1):
        if line.strip():
            try:
                found.append(msgspec.json.decode(line, type=Anchor))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise UnreadableAnchors(str(path), number, str(error)) from None
    return found


def add_anchors(path: PathLike, anchors: Sequence[Anchor]) -> None:
    """Append anchors to a file, which is created if missing: earlier ones stay. Synced."""
    with file_errors(path), Path(path).open("ab") as file:
        file.write(b"".join(msgspec.json.encode(one) + b"\n" for one in anchors))
        file.flush()
        os.fsync(file.fileno())
