"""The names that moved, as type checkers see them. Made by `python3 tasks.py sync`; do not edit."""

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, overload

from memory_engine.administration.erasing import ErasureReport
from memory_engine.administration.holds import StandingHold
from memory_engine.administration.retention import RetentionReport
from memory_engine.compaction.listing import CompactionHistory
from memory_engine.compaction.protocol import CompactionReport
from memory_engine.core.chunks import Chunk
from memory_engine.core.records import Receipt, RecordedEvent
from memory_engine.core.threads import ThreadInfo
from memory_engine.interchange.exporting import MemoriesExported
from memory_engine.interchange.importing import MemoriesImported
from memory_engine.recall.service import Recall
from memory_engine.replay.anchors import Anchor, Contradicted
from memory_engine.replay.bisect import Bisection
from memory_engine.replay.diff import Diff
from memory_engine.replay.divergence import VerifyReport
from memory_engine.replay.explanation import Why
from memory_engine.replay.export.archive import StoreExport, StoreImport
from memory_engine.replay.export.export import ExportReport
from memory_engine.replay.export.importer import ImportReport
from memory_engine.replay.ledger import CacheLedger
from memory_engine.replay.quarantine import Quarantine, QuarantineReport
from memory_engine.replay.rereduce import RereduceReport
from memory_engine.replay.what_if import WhatIfReport
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.queue import BlockingReason
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.store.acts import Act
from memory_engine.store.protocol import Backup, Store
from memory_engine.store.reader import LogReader
from memory_engine.views.layers.offloads import Opened
from memory_engine.views.playbooks.flows import Flows
from memory_engine.views.report import Report

OF_THREADS: Mapping[str, str]
OF_ENGINES: Mapping[str, str]
MYPY = False

class OldNames: ...

def where_now(kind: type, name: str) -> str: ...

class OldThreadNames(OldNames):
    if MYPY:
        if os.name == "mypy":
            anchor: Callable[..., Coroutine[Any, Any, Anchor]]
            archive: Callable[..., Coroutine[Any, Any, None]]
            as_of: int | None
            bisect: Callable[..., Coroutine[Any, Any, Bisection]]
            blocking_reason: Callable[..., Coroutine[Any, Any, BlockingReason | None]]
            cache_ledger: Callable[..., Coroutine[Any, Any, CacheLedger]]
            check_present: Callable[..., None]
            chunk: Callable[..., Coroutine[Any, Any, Chunk]]
            clear: Callable[..., Coroutine[Any, Any, Receipt]]
            compactions: Callable[..., Coroutine[Any, Any, CompactionHistory]]
            delete: Callable[..., Coroutine[Any, Any, ErasureReport]]
            delivered: Callable[..., Coroutine[Any, Any, None]]
            diff: Callable[..., Coroutine[Any, Any, Diff]]
            end_session: Callable[..., Coroutine[Any, Any, Receipt]]
            erase: Callable[..., Coroutine[Any, Any, ErasureReport]]
            exists: Callable[..., Coroutine[Any, Any, bool]]
            export: Callable[..., Coroutine[Any, Any, ExportReport]]
            flows: Flows
            followed: Callable[..., Coroutine[Any, Any, ThreadRuntime]]
            hold: Callable[..., Coroutine[Any, Any, StandingHold]]
            is_blocked: Callable[..., Coroutine[Any, Any, bool]]
            kernel: Kernel
            kind: str
            last_seq: Callable[..., Coroutine[Any, Any, int]]
            latest: Callable[..., Coroutine[Any, Any, list[RecordedEvent]]]
            mark_critical: Callable[..., Coroutine[Any, Any, Receipt]]
            measure: Callable[..., Coroutine[Any, Any, tuple[int, int]]]
            of: Any
            offload: Callable[..., Coroutine[Any, Any, Receipt | None]]
            open: Callable[..., Coroutine[Any, Any, Opened]]
            originals: Callable[..., Coroutine[Any, Any, list[Chunk]]]
            pause: Callable[..., Coroutine[Any, Any, Receipt]]
            prepare_search: Callable[..., Coroutine[Any, Any, None]]
            quarantine: Callable[..., Coroutine[Any, Any, QuarantineReport]]
            quarantines: Callable[..., Coroutine[Any, Any, tuple[Quarantine, ...]]]
            rebuild: Callable[..., Coroutine[Any, Any, ThreadInfo]]
            redo_compaction: Callable[..., Coroutine[Any, Any, CompactionReport]]
            release: Callable[..., Coroutine[Any, Any, Sequence[StandingHold]]]
            report: Callable[..., Coroutine[Any, Any, Report]]
            rereduce: Callable[..., Coroutine[Any, Any, RereduceReport]]
            resume: Callable[..., Coroutine[Any, Any, Receipt]]
            row: Callable[..., Coroutine[Any, Any, Any]]
            rows: Callable[..., Coroutine[Any, Any, Any]]
            rows_between: Callable[..., Coroutine[Any, Any, Any]]
            runtime: Callable[..., Coroutine[Any, Any, ThreadRuntime]]
            settle: Callable[..., Coroutine[Any, Any, None]]
            to_pytest: Callable[..., Coroutine[Any, Any, str]]
            unarchive: Callable[..., Coroutine[Any, Any, None]]
            undo_compaction: Callable[..., Coroutine[Any, Any, Receipt]]
            undo_rereduce: Callable[..., Coroutine[Any, Any, Receipt]]
            update: Callable[..., Coroutine[Any, Any, Receipt]]
            upto: Callable[..., Coroutine[Any, Any, int | None]]
            verify: Callable[..., Coroutine[Any, Any, VerifyReport]]
            view: Callable[..., Coroutine[Any, Any, dict[str, object]]]
            what_if: Callable[..., Coroutine[Any, Any, WhatIfReport]]
            why: Callable[..., Coroutine[Any, Any, Why]]
    else:
        @overload
        def __getattr__(self, name: Literal["anchor"]) -> Callable[..., Coroutine[Any, Any, Anchor]]: ...
        @overload
        def __getattr__(
            self, name: Literal["archive", "delivered", "prepare_search", "settle", "unarchive"]
        ) -> Callable[..., Coroutine[Any, Any, None]]: ...
        @overload
        def __getattr__(self, name: Literal["as_of"]) -> int | None: ...
        @overload
        def __getattr__(self, name: Literal["bisect"]) -> Callable[..., Coroutine[Any, Any, Bisection]]: ...
        @overload
        def __getattr__(
            self, name: Literal["blocking_reason"]
        ) -> Callable[..., Coroutine[Any, Any, BlockingReason | None]]: ...
        @overload
        def __getattr__(self, name: Literal["cache_ledger"]) -> Callable[..., Coroutine[Any, Any, CacheLedger]]: ...
        @overload
        def __getattr__(self, name: Literal["check_present"]) -> Callable[..., None]: ...
        @overload
        def __getattr__(self, name: Literal["chunk"]) -> Callable[..., Coroutine[Any, Any, Chunk]]: ...
        @overload
        def __getattr__(
            self,
            name: Literal[
                "clear", "end_session", "mark_critical", "pause", "resume", "undo_compaction", "undo_rereduce", "update"
            ],
        ) -> Callable[..., Coroutine[Any, Any, Receipt]]: ...
        @overload
        def __getattr__(
            self, name: Literal["compactions"]
        ) -> Callable[..., Coroutine[Any, Any, CompactionHistory]]: ...
        @overload
        def __getattr__(
            self, name: Literal["delete", "erase"]
        ) -> Callable[..., Coroutine[Any, Any, ErasureReport]]: ...
        @overload
        def __getattr__(self, name: Literal["diff"]) -> Callable[..., Coroutine[Any, Any, Diff]]: ...
        @overload
        def __getattr__(self, name: Literal["exists", "is_blocked"]) -> Callable[..., Coroutine[Any, Any, bool]]: ...
        @overload
        def __getattr__(self, name: Literal["export"]) -> Callable[..., Coroutine[Any, Any, ExportReport]]: ...
        @overload
        def __getattr__(self, name: Literal["flows"]) -> Flows: ...
        @overload
        def __getattr__(
            self, name: Literal["followed", "runtime"]
        ) -> Callable[..., Coroutine[Any, Any, ThreadRuntime]]: ...
        @overload
        def __getattr__(self, name: Literal["hold"]) -> Callable[..., Coroutine[Any, Any, StandingHold]]: ...
        @overload
        def __getattr__(self, name: Literal["kernel"]) -> Kernel: ...
        @overload
        def __getattr__(self, name: Literal["kind"]) -> str: ...
        @overload
        def __getattr__(self, name: Literal["last_seq"]) -> Callable[..., Coroutine[Any, Any, int]]: ...
        @overload
        def __getattr__(self, name: Literal["latest"]) -> Callable[..., Coroutine[Any, Any, list[RecordedEvent]]]: ...
        @overload
        def __getattr__(self, name: Literal["measure"]) -> Callable[..., Coroutine[Any, Any, tuple[int, int]]]: ...
        @overload
        def __getattr__(self, name: Literal["of"]) -> Any: ...
        @overload
        def __getattr__(self, name: Literal["offload"]) -> Callable[..., Coroutine[Any, Any, Receipt | None]]: ...
        @overload
        def __getattr__(self, name: Literal["open"]) -> Callable[..., Coroutine[Any, Any, Opened]]: ...
        @overload
        def __getattr__(self, name: Literal["originals"]) -> Callable[..., Coroutine[Any, Any, list[Chunk]]]: ...
        @overload
        def __getattr__(self, name: Literal["quarantine"]) -> Callable[..., Coroutine[Any, Any, QuarantineReport]]: ...
        @overload
        def __getattr__(
            self, name: Literal["quarantines"]
        ) -> Callable[..., Coroutine[Any, Any, tuple[Quarantine, ...]]]: ...
        @overload
        def __getattr__(self, name: Literal["rebuild"]) -> Callable[..., Coroutine[Any, Any, ThreadInfo]]: ...
        @overload
        def __getattr__(
            self, name: Literal["redo_compaction"]
        ) -> Callable[..., Coroutine[Any, Any, CompactionReport]]: ...
        @overload
        def __getattr__(
            self, name: Literal["release"]
        ) -> Callable[..., Coroutine[Any, Any, Sequence[StandingHold]]]: ...
        @overload
        def __getattr__(self, name: Literal["report"]) -> Callable[..., Coroutine[Any, Any, Report]]: ...
        @overload
        def __getattr__(self, name: Literal["rereduce"]) -> Callable[..., Coroutine[Any, Any, RereduceReport]]: ...
        @overload
        def __getattr__(
            self, name: Literal["row", "rows", "rows_between"]
        ) -> Callable[..., Coroutine[Any, Any, Any]]: ...
        @overload
        def __getattr__(self, name: Literal["to_pytest"]) -> Callable[..., Coroutine[Any, Any, str]]: ...
        @overload
        def __getattr__(self, name: Literal["upto"]) -> Callable[..., Coroutine[Any, Any, int | None]]: ...
        @overload
        def __getattr__(self, name: Literal["verify"]) -> Callable[..., Coroutine[Any, Any, VerifyReport]]: ...
        @overload
        def __getattr__(self, name: Literal["view"]) -> Callable[..., Coroutine[Any, Any, dict[str, object]]]: ...
        @overload
        def __getattr__(self, name: Literal["what_if"]) -> Callable[..., Coroutine[Any, Any, WhatIfReport]]: ...
        @overload
        def __getattr__(self, name: Literal["why"]) -> Callable[..., Coroutine[Any, Any, Why]]: ...

class OldEngineNames(OldNames):
    if MYPY:
        if os.name == "mypy":
            acts: Callable[..., Coroutine[Any, Any, Sequence[Act]]]
            anchors: Callable[..., Coroutine[Any, Any, list[Anchor]]]
            backup: Callable[..., Coroutine[Any, Any, Backup]]
            check_anchors: Callable[..., Coroutine[Any, Any, list[Contradicted]]]
            export_all: Callable[..., Coroutine[Any, Any, StoreExport]]
            export_memories: Callable[..., Coroutine[Any, Any, MemoriesExported]]
            finish_acts: Callable[..., Coroutine[Any, Any, list[ErasureReport]]]
            holds: Callable[..., Coroutine[Any, Any, list[StandingHold]]]
            import_all: Callable[..., Coroutine[Any, Any, StoreImport]]
            import_log: Callable[..., Coroutine[Any, Any, ImportReport]]
            import_memories: Callable[..., Coroutine[Any, Any, MemoriesImported]]
            kernel: Kernel
            reader: LogReader
            recall: Recall
            rekey: Callable[..., Coroutine[Any, Any, Backup]]
            retain: Callable[..., Coroutine[Any, Any, RetentionReport]]
            retain_every: Callable[..., Callable[[], None]]
            store: Store
    else:
        @overload
        def __getattr__(self, name: Literal["acts"]) -> Callable[..., Coroutine[Any, Any, Sequence[Act]]]: ...
        @overload
        def __getattr__(self, name: Literal["anchors"]) -> Callable[..., Coroutine[Any, Any, list[Anchor]]]: ...
        @overload
        def __getattr__(self, name: Literal["backup", "rekey"]) -> Callable[..., Coroutine[Any, Any, Backup]]: ...
        @overload
        def __getattr__(
            self, name: Literal["check_anchors"]
        ) -> Callable[..., Coroutine[Any, Any, list[Contradicted]]]: ...
        @overload
        def __getattr__(self, name: Literal["export_all"]) -> Callable[..., Coroutine[Any, Any, StoreExport]]: ...
        @overload
        def __getattr__(
            self, name: Literal["export_memories"]
        ) -> Callable[..., Coroutine[Any, Any, MemoriesExported]]: ...
        @overload
        def __getattr__(
            self, name: Literal["finish_acts"]
        ) -> Callable[..., Coroutine[Any, Any, list[ErasureReport]]]: ...
        @overload
        def __getattr__(self, name: Literal["holds"]) -> Callable[..., Coroutine[Any, Any, list[StandingHold]]]: ...
        @overload
        def __getattr__(self, name: Literal["import_all"]) -> Callable[..., Coroutine[Any, Any, StoreImport]]: ...
        @overload
        def __getattr__(self, name: Literal["import_log"]) -> Callable[..., Coroutine[Any, Any, ImportReport]]: ...
        @overload
        def __getattr__(
            self, name: Literal["import_memories"]
        ) -> Callable[..., Coroutine[Any, Any, MemoriesImported]]: ...
        @overload
        def __getattr__(self, name: Literal["kernel"]) -> Kernel: ...
        @overload
        def __getattr__(self, name: Literal["reader"]) -> LogReader: ...
        @overload
        def __getattr__(self, name: Literal["recall"]) -> Recall: ...
        @overload
        def __getattr__(self, name: Literal["retain"]) -> Callable[..., Coroutine[Any, Any, RetentionReport]]: ...
        @overload
        def __getattr__(self, name: Literal["retain_every"]) -> Callable[..., Callable[[], None]]: ...
        @overload
        def __getattr__(self, name: Literal["store"]) -> Store: ...
