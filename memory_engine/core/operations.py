"""Operations: data that describes how the state changes. The executor applies them."""

from typing import TypeAlias

import msgspec


class Add(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="ADD", gc=False):
    """Place a new chunk: at the end, `first`, or `before`/`after` another; in a `container` or at the top."""

    chunk: str
    container: str = ""
    before: str = ""
    after: str = ""
    first: bool = False


class Update(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="UPDATE", gc=False):
    """A new version (`by`) of `chunk` takes its place, keeps its type and its children."""

    chunk: str
    by: str


class Delete(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="DELETE", gc=False):
    """Take a chunk, and its children, out of the state."""

    chunk: str


class Reorder(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="REORDER", gc=False):
    """Move a chunk within its container: to the end, `first`, or `before`/`after` another."""

    chunk: str
    before: str = ""
    after: str = ""
    first: bool = False


class Replace(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="REPLACE", gc=False):
    """Another chunk (`by`) takes the place of `chunk`, whose children go."""

    chunk: str
    by: str


class BatchReplace(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="BATCH_REPLACE", gc=False):
    """The chunks go; those in `by` (perhaps none) stand where the first of them stood."""

    chunks: tuple[str, ...]
    by: tuple[str, ...] = ()


class Batch(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="BATCH", gc=False):
    """Operations applied in order, all or none."""

    operations: tuple["Operation", ...]


Operation: TypeAlias = Add | Update | Delete | Reorder | Replace | BatchReplace | Batch


def operation_name(operation: Operation) -> str:
    """Its wire name, such as ADD."""
    return str(operation.__struct_config__.tag)
