"""Branches of a graph's runs: a checkpoint whose parent is not the latest one leaves what came after that parent."""

from collections.abc import Iterator

import msgspec

from memory_engine.projections.base import ReadableRows
from memory_engine.views.checkpoints.events import CheckpointName
from memory_engine.views.checkpoints.fold import AnyCheckpointRow, checkpoint_at, checkpoints_in
from memory_engine.views.checkpoints.packing import numbers_of, piece_digest
from memory_engine.views.checkpoints.view import Checkpoints, Draft


class Branch(msgspec.Struct, frozen=True):
    """The items that a list loses and gains where a new branch begins, with their digests, in order."""

    left: dict[bytes, bytes]
    kept: list[bytes]


async def branch(checkpoints: Checkpoints, draft: Draft, parent: str, channel: str) -> Branch | None:
    """The branch that a draft begins; `None` if it continues the latest checkpoint, or has no parent."""
    rows, namespace = await checkpoints.rows(), draft.name.namespace
    latest = next(checkpoints_in(rows, namespace), "")
    if not parent or latest in ("", parent, draft.name.id):
        return None
    above = frozenset(_history(rows, namespace, parent))
    numbers: set[int] = set()
    for name in _history(rows, namespace, latest):
        if name in above:
            break
        numbers.update(await _channel_numbers(checkpoints, rows, CheckpointName(namespace, name), channel))
    began = await _channel_numbers(checkpoints, rows, CheckpointName(namespace, parent), channel)
    items = await checkpoints.items(rows, {*numbers, *began})
    digests = {number: piece_digest(item) for number, item in items.items()}
    before = [digests[number] for number in began if number in digests]
    kept = list(draft.digests(channel)) or before
    known = {*before, *kept}
    left = {
        digests[number]: items[number] for number in sorted(numbers & digests.keys()) if digests[number] not in known
    }
    return Branch(left, kept)


def _history(rows: ReadableRows[AnyCheckpointRow], namespace: str, name: str) -> Iterator[str]:
    """A checkpoint and those that it came from, the latest first."""
    seen = set[str]()
    while name and name not in seen and (row := checkpoint_at(rows, namespace, name)) is not None:
        seen.add(name)
        yield name
        name = row.parent


async def _channel_numbers(
    checkpoints: Checkpoints, rows: ReadableRows[AnyCheckpointRow], name: CheckpointName, channel: str
) -> list[int]:
    value = (await checkpoints.known(rows, name)).get(channel)
    return [] if value is None or value.spans is None else list(numbers_of(value.spans))
