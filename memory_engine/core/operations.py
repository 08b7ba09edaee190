"""Operations: data that describes how the state changes. The executor applies them."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from memory_engine.core.arguments import set_tuples


class Add(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="ADD", gc=False):
    """Place a new chunk: at the end, `first`, or `before`/`after` another; in a `container` or at the top."""

    chunk: str
    container: str = ""
    before: str = ""
    after: str = ""
    first: bool = False


class Update(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="UPDATE", gc=False):
    """Replace `chunk` with a new version (`by`) that keeps its type and its children."""

    chunk: str
    by: str


class Delete(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="DELETE", gc=False):
    """Remove a chunk, and its children, from the state."""

    chunk: str


class Reorder(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="REORDER", gc=False):
    """Move a chunk within its container: to the end, `first`, or `before`/`after` another."""

    chunk: str
    before: str = ""
    after: str = ""
    first: bool = False


class Replace(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="REPLACE", gc=False):
    """Replace `chunk` with another chunk (`by`); the children of `chunk` are removed."""

    chunk: str
    by: str


class BatchReplace(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="BATCH_REPLACE", gc=False):
    """Remove the chunks; those in `by` (perhaps none) take the place of the first of them."""

    chunks: tuple[str, ...]
    by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        set_tuples(self, "chunks", "by")


class Batch(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="BATCH", gc=False):
    """Operations to apply in order, all or none."""

    operations: tuple["Operation", ...]

    def __post_init__(self) -> None:
        set_tuples(self, "operations")


Operation: TypeAlias = Add | Update | Delete | Reorder | Replace | BatchReplace | Batch
"""Data that says how the state changes."""


def operation_name(operation: Operation) -> str:
    """Its wire name, such as ADD."""
    return str(operation.__struct_config__.tag)


def place_text(operation: Operation) -> str:
    """Where an operation puts its chunk, which `describe` omits: ` in 5.0 after 4.0`; empty for the end."""
    if not isinstance(operation, Add | Reorder):
        return ""
    container = f" in {operation.container}" if isinstance(operation, Add) and operation.container else ""
    beside = {"before": operation.before, "after": operation.after}
    first = " first" if operation.first else ""
    return container + first + "".join(f" {where} {chunk_id}" for where, chunk_id in beside.items() if chunk_id)


def flattened(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The operations, those inside a BATCH one by one."""
    for operation in operations:
        if isinstance(operation, Batch):
            yield from flattened(operation.operations)
        else:
            yield operation
