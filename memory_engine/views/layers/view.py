"""Memory in four layers: the handle."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from memory_engine.context.ownership import Viewer
from memory_engine.core.arguments import checked_flag, checked_text, checked_type
from memory_engine.core.lazy import lazy_module
from memory_engine.errors import InvalidArgument, InvalidMemory, UnknownMemory
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.layers.entries import (
    CompactReport,
    KnowledgeEntry,
    MemoryEntry,
    MemoryHit,
    MemoryStats,
    ProceduralRule,
    SearchMode,
    appended_event,
    check_layer,
    check_layers,
    knowledge_event,
    knowledge_of,
    moment_of,
    rule_of,
)
from memory_engine.views.layers.events import (
    Layer,
    LayerLine,
    MemoryAppended,
    MemoryCleared,
    MemoryCompacted,
    MemoryRemoved,
)
from memory_engine.views.layers.fold import (
    EPISODIC,
    LAYER_NAMES,
    LAYERS,
    SUMMARIZED,
    WITHHELD,
    EntryRow,
    entry_row,
    keys_of,
    layer_rows,
    summary_of,
)
from memory_engine.views.layers.keywords import HIDDEN_FACTOR, MemoryQuery, check_limit, search_layers
from memory_engine.views.layers.viewers import rows_for

if TYPE_CHECKING:
    from memory_engine.context import builder
    from memory_engine.llm import base
    from memory_engine.llm.base import LanguageModel
    from memory_engine.views.layers import summaries
    from memory_engine.views.layers.summaries import Older, SummaryDraft
else:
    builder = lazy_module("memory_engine.context.builder")
    base = lazy_module("memory_engine.llm.base")
    summaries = lazy_module("memory_engine.views.layers.summaries")

KEEP_LAST = 10
_TRIES = 2


class Memory:
    """Working, episodic, semantic and procedural memory of one thread. Everything in it comes from the log.

    With a `viewer` it reads only what may be shown in that conversation (see `seen_in`).
    """

    def __init__(self, thread: ThreadHandle, *, viewer: Viewer | None = None) -> None:
        self._thread = thread
        self._viewer = viewer

    async def seen_in(self, thread_id: str) -> "Memory":
        """The same memory without what people said in conversations other than this, but for those of its user.

        An agent's memory serves many users: show a model only this. Raises `ThreadNotFound`.
        """
        checked_text("thread_id", thread_id)
        info = await ThreadHandle(self._thread.kernel, thread_id).info()
        return Memory(self._thread, viewer=Viewer(info.user_id, info.id))

    # in

    async def append(  # noqa: PLR0913 - what an entry holds, by keyword
        self,
        layer: Layer,
        entry: "str | MemoryEntry | Mapping[str, object]",
        *,
        metadata: Mapping[str, object] | None = None,
        key: str = "",
        condition: str = "",
        id: str = "",
        timestamp: datetime | float | None = None,
        recalled: bool = False,
    ) -> MemoryEntry:
        """Add an entry: its content, or the whole entry as an object or a mapping. Id and time are filled in.

        Semantic: replaces an entry under the same key (`metadata["key"]`, else the id). Procedural: a rule, whose
        content says what to do when `condition` (or `metadata["condition"]`; none: always) holds. Working: the last 50
        stay. A mapping without `content` gets it from its fields. Raises `InvalidMemory`, `InvalidEvent`.
        """
        checked_flag("recalled", recalled)
        checked_text("id", id)
        checked_text("condition", condition)
        checked_text("key", key)
        given = MemoryEntry(
            content="",
            metadata={} if metadata is None else metadata,
            key=key,
            condition=condition,
            id=id,
            timestamp=moment_of(timestamp),
            recalled=recalled,
        )
        capacity = self._thread.kernel.config.working_entries_max
        return await self._appended(appended_event(check_layer(layer), entry, given, capacity))

    async def learn(
        self, key: "str | KnowledgeEntry | Mapping[str, object]", value: str | None = None, *, recalled: bool = False
    ) -> KnowledgeEntry:
        """Store a fact under its key, replacing the previous one. Raises `InvalidMemory`, `InvalidEvent`."""
        entry = await self._appended(knowledge_event(key, value, recalled=recalled))
        return KnowledgeEntry(
            key=entry.key,
            value=entry.content,
            timestamp=entry.timestamp,
            recalled=entry.recalled,
            seq=entry.seq,
            event_id=entry.event_id,
        )

    async def _appended(self, event: MemoryAppended) -> MemoryEntry:
        receipt = await self._thread.dispatch(event)
        row = entry_row(event, seq=receipt.seq, event_id=receipt.event_id, recorded_us=receipt.recorded_at_us)
        return MemoryEntry.of(row)

    # out

    async def search(  # noqa: PLR0913 - the ways to ask, by keyword
        self,
        layer: "Layer | Sequence[Layer] | None",
        query: str = "",
        limit: int = 10,
        *,
        last: int | None = None,
        mode: SearchMode = "hybrid",
        at: int | None = None,
    ) -> list[MemoryHit]:
        """The entries of one layer, several or all (`None`) that best match a query, best first.

        `mode="keyword"` counts occurrences; `"hybrid"` weighs words, and meaning if the engine has an embedder.
        `last=5` gives the latest five instead, oldest first. Raises `InvalidMemory`.
        """
        layers = check_layers(layer)
        checked_text("query", query)
        if last is not None:
            check_limit("last", last)
            return await self._latest(layers, last, at)
        wanted = MemoryQuery(query=query, limit=limit, mode=mode, at=at, viewer=self._viewer)
        return await search_layers(self._thread, layers, wanted)

    async def _latest(self, layers: Sequence[Layer], last: int, at: int | None) -> list[MemoryHit]:
        looked_at = last if self._viewer is None else last * HIDDEN_FACTOR
        found = [row for layer in layers for row in await self._latest_rows(layer, looked_at, at)]
        rows = await self._seen(found)
        rows.sort(key=lambda row: row.upto or row.seq)
        entries = map(MemoryEntry.of, rows[-last:])
        return [MemoryHit(entry=e, score=0.0, why="among the latest", layer=e.layer or "working") for e in entries]

    async def _latest_rows(self, layer: Layer, last: int, at: int | None) -> list[EntryRow]:
        if layer != "episodic" or at is not None:
            return (await layer_rows(self._thread, layer, at)).rows()[-last:]
        rows = [row for _, row in await self._thread.rows_between(EPISODIC, limit=last, latest=True)]
        summary = summary_of(await self._thread.rows(LAYERS), layer) if len(rows) < last else None
        return rows if summary is None else [summary, *rows]

    async def recall(self, key: str, *, at: int | None = None) -> KnowledgeEntry | None:
        """The fact under a key; `None` without one."""
        checked_text("key", key)
        row = (await self._thread.rows(LAYERS, at=at)).get(f"semantic/{key}")
        seen = await self._seen([row] if row is not None else [])
        return knowledge_of(seen[0]) if seen else None

    async def rules(self, *, at: int | None = None) -> list[ProceduralRule]:
        """The rules of procedural memory, oldest first."""
        return [rule_of(row) for row in await self._seen((await layer_rows(self._thread, "procedural", at)).rows())]

    async def entries(self, layer: Layer, *, at: int | None = None) -> list[MemoryEntry]:
        """All entries of a layer, oldest first, after a summary of older ones."""
        rows = await layer_rows(self._thread, check_layer(layer), at)
        return [MemoryEntry.of(row) for row in await self._seen(rows.rows())]

    async def _seen(self, rows: list[EntryRow]) -> list[EntryRow]:
        return await rows_for(self._thread, rows, self._viewer)

    async def open(self, entry_id: str) -> list[MemoryEntry]:
        """An entry by id, even one that a summary covers; for a summary, the entries it covers, in order.

        Covered entries are read from the log. Raises `UnknownMemory`.
        """
        found = await self._seen(await self._find(entry_id, LAYER_NAMES))
        if not found:
            raise UnknownMemory(self._thread.id, entry_id)
        row = found[-1]
        opened = await self._seen(await summaries.covered_rows(self._thread, row)) if row.count else [row]
        return [MemoryEntry.of(one) for one in opened]

    async def originals(self, summary: "MemoryEntry | MemoryHit") -> list[MemoryEntry]:
        """The entries that a summary covers, in order. Raises `UnknownMemory` if it no longer exists."""
        checked_type("summary", summary, (MemoryEntry, MemoryHit), give="an entry, or a hit that holds one")
        return await self.open(summary.entry.id if isinstance(summary, MemoryHit) else summary.id)

    async def get_stats(self) -> MemoryStats:
        """Counts, working memory's tokens, and the bytes that all layers take. Always current: there is no `at`."""
        entries, entry_bytes = await self._thread.measure(EPISODIC)
        _, bytes_ = await self._thread.measure(LAYERS)
        rows = await self._thread.rows(LAYERS)
        counter = self._thread.kernel[builder.ContextBuilder].counter
        working = [row.text for key in keys_of(rows, "working") if (row := rows.get(key)) is not None]
        return MemoryStats(
            working_memory_tokens=sum(counter.count(text) for text in working),
            episodic_entry_count=entries + len(keys_of(rows, "episodic")),
            semantic_entry_count=len(keys_of(rows, "semantic")),
            procedural_rule_count=len(keys_of(rows, "procedural")),
            total_storage_bytes=entry_bytes + bytes_,
        )

    # away

    async def remove(self, entry_id: str, layer: Layer, *, reason: str = "") -> int:
        """Remove the entries with this id from a layer, and from its summary; returns how many there were.

        The log keeps them. Raises `UnknownMemory`.
        """
        found = await self._find(entry_id, (check_layer(layer),))
        if not found:
            raise UnknownMemory(self._thread.id, entry_id)
        await self._thread.dispatch(MemoryRemoved(layer=layer, seqs=tuple(row.seq for row in found), reason=reason))
        return len(found)

    async def clear(self, layer: Layer | None = None, *, reason: str = "") -> None:
        """Empty a layer, or all of them. The log keeps their entries."""
        await self._thread.dispatch(MemoryCleared(layers=check_layers(layer), reason=reason))

    async def compact(
        self,
        layer: Layer,
        *,
        keep_last: int = KEEP_LAST,
        summarize_older: bool = True,
        model: "LanguageModel | None" = None,
    ) -> CompactReport:
        """Replace all but the last entries with a summary; with `summarize_older=False` they are just removed.

        Uses `model`, or the engine's `memory_model`; works locally without one, or if its answer is unusable. Semantic
        memory needs none; of rules the last stay. Entries appended meanwhile stay. Raises `InvalidMemory`.
        """
        checked_flag("summarize_older", summarize_older)
        if model is not None and not hasattr(model, "complete"):
            raise InvalidArgument("model", model, "give a language model")
        if type(keep_last) is not int or keep_last < 0:
            raise InvalidMemory("keep_last", keep_last, "it is a number of entries: 0 or more")
        if check_layer(layer) == "semantic":
            count = len(keys_of(await self._thread.rows(LAYERS), layer))
            return CompactReport(
                layer=layer, covered=0, kept=count, note="one entry a key: there is nothing to compact"
            )
        count = await self._count(layer)
        if count == 0:
            return CompactReport(layer=layer, covered=0, kept=0, note="there are no entries")
        for _ in range(_TRIES):
            older = await summaries.older_entries(self._thread, layer, keep_last)
            if older is None:
                break
            if not summarize_older or layer not in SUMMARIZED:
                return await self._record(older, older.count, None)
            material = await summaries.material_of(self._thread, older)
            timeout_s = self._thread.kernel.config.memory_model_timeout_s
            draft = await summaries.drafted(layer, material, model or self._model, timeout_s=timeout_s)
            report = await self._record(older, material.count, draft)
            if report.summary is None or report.summary.content.find(WITHHELD.text) < 0:
                return report
        kept = min(keep_last, count)
        return CompactReport(layer=layer, covered=0, kept=kept, note=f"there are no more than {keep_last} entries")

    async def _count(self, layer: Layer) -> int:
        """How many entries a layer has, a summary among them; episodic ones are not read for it."""
        resident = len(keys_of(await self._thread.rows(LAYERS), layer))
        return resident + ((await self._thread.measure(EPISODIC))[0] if layer == "episodic" else 0)

    @property
    def _model(self) -> "LanguageModel | None":
        return self._thread.kernel[base.MemoryModel].model

    async def _record(self, older: "Older", count: int, draft: "SummaryDraft | None") -> CompactReport:
        lines: tuple[LayerLine, ...] = draft.lines if draft is not None else ()
        event = MemoryCompacted(
            layer=older.layer,
            upto=older.upto,
            count=count,
            first=older.first,
            drawn_at=older.drawn_at,
            lines=lines,
            left_out=draft.left_out if draft is not None else 0,
            method=draft.method if draft is not None else "",
            model=draft.model if draft is not None else "",
            usage=draft.usage if draft is not None else None,
            failure=draft.failure if draft is not None else "",
        )
        await self._thread.dispatch(event)
        summary = summary_of(await self._thread.rows(LAYERS), older.layer)
        return CompactReport(
            layer=older.layer,
            covered=count,
            kept=older.kept,
            summary=MemoryEntry.of(summary) if summary is not None and lines else None,
            method=event.method,
            model=event.model,
            usage=event.usage,
            failure=event.failure,
        )

    async def _find(self, entry_id: str, layers: Sequence[Layer]) -> list[EntryRow]:
        """The rows of an id in these layers; without any, those that their summaries cover."""
        found: list[EntryRow] = []
        covering: list[EntryRow] = []
        for layer in layers:
            for row in (await layer_rows(self._thread, layer)).rows():
                if row.id == entry_id:
                    found.append(row)
                elif row.count:
                    covering.append(row)
        for summary in covering if not found else ():
            found += [row for row in await summaries.covered_rows(self._thread, summary) if row.id == entry_id]
        return sorted(found, key=lambda row: row.seq)
