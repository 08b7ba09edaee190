"""Names that moved to a group: they still lead there, and neither `dir` nor completion shows them.

Declared once, here. What type checkers read, `moved.pyi`, is made of it by `python3 tasks.py sync`.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import ClassVar

OF_THREADS: Mapping[str, str] = {
    "anchor": "replay.anchor",
    "archive": "admin.archive",
    "as_of": "_handle.as_of",
    "bisect": "replay.bisect",
    "blocking_reason": "admin.blocking_reason",
    "cache_ledger": "replay.ledger",
    "check_present": "_handle.check_present",
    "chunk": "replay.chunk",
    "clear": "admin.clear",
    "compactions": "compaction.history",
    "delete": "admin.delete",
    "delivered": "views.delivered",
    "diff": "replay.diff",
    "end_session": "admin.end_session",
    "erase": "admin.erase",
    "exists": "_handle.exists",
    "export": "replay.export",
    "flows": "views.flows",
    "followed": "_handle.followed",
    "hold": "admin.hold",
    "is_blocked": "admin.is_blocked",
    "kernel": "_handle.kernel",
    "kind": "_handle.kind",
    "last_seq": "_handle.last_seq",
    "latest": "replay.latest",
    "mark_critical": "compaction.mark_critical",
    "measure": "_handle.measure",
    "of": "_view_of_thread",
    "offload": "compaction.offload",
    "open": "compaction.open",
    "originals": "compaction.originals",
    "pause": "admin.pause",
    "prepare_search": "admin.prepare_search",
    "quarantine": "admin.quarantine",
    "quarantines": "admin.quarantines",
    "rebuild": "replay.rebuild",
    "redo_compaction": "compaction.redo",
    "release": "admin.release",
    "report": "views.report",
    "rereduce": "replay.rereduce",
    "resume": "admin.resume",
    "row": "views.row",
    "rows": "views.rows",
    "rows_between": "views.rows_between",
    "runtime": "_handle.runtime",
    "settle": "compaction.settle",
    "to_pytest": "replay.to_pytest",
    "unarchive": "admin.unarchive",
    "undo_compaction": "compaction.undo",
    "undo_rereduce": "replay.undo_rereduce",
    "update": "admin.update",
    "upto": "_handle.upto",
    "verify": "replay.verify",
    "view": "views.read",
    "what_if": "replay.what_if",
    "why": "replay.why",
}
"""Where the older names of a thread lead. `_handle` is what views and adapters are given (`ThreadHandle`)."""

OF_ENGINES: Mapping[str, str] = {
    "acts": "admin.acts",
    "anchors": "admin.anchors",
    "backup": "admin.backup",
    "check_anchors": "admin.check_anchors",
    "export_all": "transfer.export_all",
    "export_memories": "transfer.export_memories",
    "finish_acts": "admin.finish_acts",
    "holds": "admin.holds",
    "import_all": "transfer.import_all",
    "import_log": "transfer.import_log",
    "import_memories": "transfer.import_memories",
    "kernel": "_kernel",
    "reader": "_kernel.reader",
    "recall": "_recall",
    "rekey": "admin.rekey",
    "retain": "admin.retain",
    "retain_every": "admin.retain_every",
    "store": "_kernel.store",
}
"""Where the older names of an engine lead."""


class OldNames:
    """An object whose older names lead to where they are now."""

    _moved: ClassVar[Mapping[str, str]] = {}

    def __getattr__(self, name: str) -> object:
        path = where_now(type(self), name)
        if not path:
            return object.__getattribute__(self, name)  # raises again: a property's own error is not hidden
        return attrgetter(path)(self)


class OldThreadNames(OldNames):
    """Those of threads."""

    _moved: ClassVar = OF_THREADS


class OldEngineNames(OldNames):
    """Those of engines."""

    _moved: ClassVar = OF_ENGINES


def where_now(kind: type, name: str) -> str:
    """The path from an object of a class to what an older name of it leads to; empty if the name is not one."""
    return kind._moved.get(name, "") if issubclass(kind, OldNames) else ""
