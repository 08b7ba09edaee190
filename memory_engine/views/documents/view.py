"""`engine.tenant(id).documents`: an organisation's papers, mails, chats and calls."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TypeVar

from attrs import define, evolve, field

from memory_engine.core.arguments import PathLike, checked_call, checked_file, checked_text, checked_type
from memory_engine.core.aside import on_thread
from memory_engine.core.events.base import Event
from memory_engine.core.ids import check_identifier
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.errors import (
    IdempotencyConflict,
    InvalidArgument,
    InvalidDocument,
    InvalidInput,
    MissingExtra,
    UnreadableDocument,
)
from memory_engine.recall.hits import Found
from memory_engine.recall.service import Recall, search_thread
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.passages import Extractors
from memory_engine.views.documents.changes import changes, with_ids
from memory_engine.views.documents.events import DocumentAdded, DocumentPassage, DocumentRemoved
from memory_engine.views.documents.fold import (
    DOCUMENTS,
    Described,
    Document,
    DocumentReport,
    changed_at,
    document_of,
    documents_of,
)
from memory_engine.views.documents.readers.document import Loaded
from memory_engine.views.documents.readers.files import File, SkippedFile, absolute, find, load
from memory_engine.views.documents.readers.splitting import Splitting, markdown_document
from memory_engine.views.documents.readers.text import in_utc, text_document

T = TypeVar("T")

TRIES_MAX = 5
"""How often a change is recomputed when others change the same document."""
AT_ONCE = 64
"""Files that are found, and documents that are read, in one go beside the event loop."""
TITLE_CHARS_MAX = 80
DEFAULT = Splitting()
UNDESCRIBED = Described()


class Documents:
    """A tenant's documents. They enter a model's context only when someone searches."""

    def __init__(self, tenant: ScopeHandle) -> None:
        self._tenant = tenant

    async def add(
        self,
        source: PathLike,
        *,
        title: str = "",
        id: str = "",
        splitting: Splitting = DEFAULT,
        limits: ReadingLimits = DEFAULT_LIMITS,
    ) -> tuple[Document, ...]:
        """Add a file (a `Path`; a folder, a mailbox or an export is many documents) or a text (a `str`).

        `title` and `id` are for a text, see `add_text`; its title defaults to its first line. Raises
        `UnreadableDocument` if something cannot be read, after adding all that can; `InvalidDocument`; `MissingExtra`.
        """
        checked_text("id", id)
        checked_text("title", title)
        checked_type("limits", limits, ReadingLimits, give="ReadingLimits")
        checked_type("source", source, (str, os.PathLike), give="a text, or the Path of a file")
        if isinstance(source, str):
            return (await self.add_text(source, title=title or _first_line(source), id=id, splitting=splitting),)
        taken: list[str] = []
        report = await self._ingest([checked_file("source", source)], _Ingestion(splitting, limits, taken=taken))
        if report.failed:
            missing = report.failed[0].__cause__
            raise missing if isinstance(missing, MissingExtra) else report.failed[0]
        rows = await self._tenant.rows(DOCUMENTS)
        found = (document_of(rows, one) for one in taken)
        return tuple(document for document in found if document is not None)

    async def add_text(
        self,
        text: str,
        *,
        title: str,
        id: str = "",
        described: Described = UNDESCRIBED,
        splitting: Splitting = DEFAULT,
    ) -> Document:
        """Add a text, plain or Markdown. Under an existing `id` it becomes that document's new version.

        Without an id, a digest of title and text identifies it. Equal text, description and splitting write nothing.
        Raises `InvalidDocument` for a text without words, `InvalidIdentifier`.
        """
        checked_text("id", id)
        checked_text("text", text)
        checked_type("described", described, Described, give="a Described")
        checked_type("splitting", splitting, Splitting, give="a Splitting")
        if not checked_text("title", title).strip():
            raise InvalidDocument("title", title, "give it one to be found and shown by")
        digest = sha256(f"{title}\0{text}".encode("utf-8", "replace")).hexdigest()
        plain = text.replace("\r\n", "\n")
        read = await on_thread(lambda: _text_of(plain, id or f"text:{digest[:24]}", title, described))
        seq = await self._put(read, _Ingestion(splitting))
        document = await self.get(read.id) or await self.get(read.id, at=seq)  # another may have removed it by now
        assert document is not None
        return document

    async def ingest(
        self,
        paths: PathLike | Iterable[PathLike],
        *,
        splitting: Splitting = DEFAULT,
        limits: ReadingLimits = DEFAULT_LIMITS,
        progress: Callable[[DocumentReport], None] | None = None,
    ) -> DocumentReport:
        """Add files, and everything in folders: one path, or several.

        The report names files that cannot be read, and those that exceed one of the `limits`; the rest is added.

        A file unchanged since the last time writes nothing; `progress` is called after each file. Raises only errors
        that a file did not cause: a `StorageError`, `QueueFull`.
        """
        checked_call("progress", progress)
        checked_type("limits", limits, ReadingLimits, give="ReadingLimits")
        checked_type("splitting", splitting, Splitting, give="a Splitting")
        several = [paths] if isinstance(paths, str | os.PathLike) else paths
        if isinstance(several, Mapping) or not isinstance(several, Iterable):
            raise InvalidArgument("paths", paths, "give a path, or several")
        named = [checked_file("paths", path) for path in several]
        return await self._ingest(named, _Ingestion(splitting, limits, progress))

    async def list(self, *, at: int | None = None) -> tuple[Document, ...]:
        """All documents, in order of id."""
        return tuple(documents_of(await self._tenant.rows(DOCUMENTS, at=at)))

    async def get(self, id: PathLike, *, at: int | None = None) -> Document | None:
        """One document by id; a path means that file's document."""
        checked_type("id", id, (str, os.PathLike), give="the id of a document, or the Path of a file")
        return document_of(await self._tenant.rows(DOCUMENTS, at=at), id if isinstance(id, str) else absolute(Path(id)))

    async def passages(self, id: PathLike) -> tuple[DocumentPassage, ...]:
        """The passages of a document as it is now, in reading order; empty if there is no such document."""
        document = await self.get(id)
        if document is None:
            return ()
        texts: dict[str, DocumentPassage] = {}
        for seq in sorted({place.seq for place in document.passages}):
            async for recorded in self._tenant.events(after=seq - 1, upto=seq):
                if isinstance(recorded.event, DocumentAdded):
                    texts |= {one.key: one for splice in recorded.event.splices for one in splice.passages}
        return tuple(texts[place.key] for place in document.passages)

    async def remove(self, id: PathLike, *, reason: str = "") -> int:
        """Remove a document with all its versions: no search finds it again, as of any seq. Returns how many went.

        A path means all documents of that file, or of all files below that folder. The log keeps the events.
        """
        checked_text("reason", reason)
        checked_type("id", id, (str, os.PathLike), give="the id of a document, or the Path of a file")
        documents = await self.list()
        if isinstance(id, os.PathLike):
            name = absolute(Path(id))
            wanted = [one.id for one in documents if one.source == name or one.source.startswith(f"{name}/")]
        else:
            wanted = [one.id for one in documents if one.id == id]
        for one in wanted:
            await self._changed(one, lambda known: _removal(known, reason))
        return len(wanted)

    async def search(self, query: str, *, limit: int = 10, at: int | None = None) -> Found:
        """The passages that best answer a question, best first; `document_id_of(hit.key)` gives their document.

        `at` searches the documents as of an earlier seq of the tenant's thread.
        """
        return await search_thread(self._tenant, query, kinds=("document",), limit=limit, at=at)

    async def _ingest(self, paths: Sequence[Path], run: "_Ingestion") -> DocumentReport:
        report = run.report
        files = find(paths)
        while some := await on_thread(partial(_some, files)):
            for found in some:
                if isinstance(found, SkippedFile):
                    report.skipped.append(found.path)
                elif isinstance(found, UnreadableDocument):
                    report.failed.append(found)
                else:
                    report.files += 1
                    await self._file(found, run)
                if run.progress is not None:
                    run.progress(report)
        if report.added or report.changed:
            await self._tenant.kernel[Recall].index_words(self._tenant.id)
        return report

    async def _file(self, found: File, run: "_Ingestion") -> None:
        documents = load(found, run.limits)
        while True:
            try:
                loaded = await on_thread(partial(_some, documents))
            except MissingExtra as error:
                run.report.failed.append(_failure(found, "", error))
                return
            for one in loaded:
                if isinstance(one, UnreadableDocument):
                    run.report.failed.append(one)
                    continue
                try:
                    await self._put(one, run)
                except InvalidInput as error:
                    run.report.failed.append(_failure(found, "" if one.id == found.name else one.id, error))
            if len(loaded) < AT_ONCE:
                return

    async def _put(self, loaded: Loaded, run: "_Ingestion") -> int:
        """Bring the document to the loaded version, and count the outcome; returns the seq as of which it is."""
        check_identifier("document id", loaded.id)
        has_text = any(section.text.strip() for section in loaded.sections)
        if not has_text and not loaded.may_be_empty:
            raise InvalidDocument("text", "", "it holds no words")

        def wanted(known: Document | None) -> Sequence[Event]:
            if not has_text:
                return _removal(known, "no longer in its source")
            return changes(known, loaded, run.splitting, run.limits)

        is_new, events, seq = await self._changed(loaded.id, wanted)
        run.report.count(events, is_new=is_new, is_there=has_text)
        run.taken.append(loaded.id)
        return seq

    async def _changed(
        self, id: str, wanted: Callable[[Document | None], Sequence[Event]]
    ) -> tuple[bool, Sequence[Event], int]:
        """Dispatch the events that are wanted for a document, all or none; computed anew where others were first.

        Whether the document is new, the events, and the seq of the last of them (of none: of its last change).
        """
        tries = 0
        while True:
            rows = await self._tenant.rows(DOCUMENTS)
            known, base = document_of(rows, id), changed_at(rows, id)
            runtime = self._tenant.kernel[OpenThreads].get(self._tenant.id)
            extractors = self._tenant.kernel.extractors if runtime is not None and runtime.indexed else None
            events = await on_thread(partial(_computed, wanted, known, extractors))
            try:
                receipts = await self._tenant.dispatch_all(with_ids(events, id, self._tenant.id, base))
            except IdempotencyConflict:
                tries += 1
                if tries == TRIES_MAX:
                    raise
                await asyncio.sleep(self._tenant.kernel.config.follow_s)  # until another process's change is seen
            else:
                return known is None, events, receipts[-1].seq if receipts else base


@define
class _Ingestion:
    """One ingestion: its options, its report, and the ids of the documents that it met."""

    splitting: Splitting
    limits: ReadingLimits = DEFAULT_LIMITS
    progress: Callable[[DocumentReport], None] | None = None
    taken: "list[str]" = field(factory=list)
    report: DocumentReport = field(factory=DocumentReport)


def _computed(
    wanted: Callable[[Document | None], Sequence[Event]], known: Document | None, extractors: Extractors | None
) -> Sequence[Event]:
    """The events, with the words of their passages taken where the commit will index these."""
    events = wanted(known)
    if extractors is not None:
        for event in events:
            extractors.take(event)
    return events


def _text_of(text: str, id: str, title: str, described: Described) -> Loaded:
    """A text given by the caller, under its title."""
    is_markdown = any(line.startswith("#") for line in text.splitlines())
    read = markdown_document(text, id, title, is_titled=True) if is_markdown else text_document(text, id, title)
    return evolve(
        read,
        source=described.source,
        author=described.author or read.author,
        date=read.date if described.date is None else _date(described.date),
        channel=described.channel,
        thread=described.thread,
        metadata={**read.metadata, **described.metadata},
    )


def _date(given: datetime) -> datetime:
    try:
        return in_utc(given)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise InvalidDocument("date", given, f"give a datetime between the years 1 and 9999 ({error})") from None


def _first_line(text: str) -> str:
    lines = (line.strip(" \t#") for line in text.splitlines())
    return next(filter(None, lines), "")[:TITLE_CHARS_MAX]


def _removal(known: Document | None, reason: str) -> Sequence[Event]:
    return () if known is None else (DocumentRemoved(document_id=known.id, seqs=known.seqs, reason=reason),)


def _failure(found: File, place: str, error: InvalidInput) -> UnreadableDocument:
    failure = UnreadableDocument(str(found.path), place, str(error))
    failure.__cause__ = error
    return failure


def _some(of: Iterator[T]) -> Sequence[T]:
    return tuple(islice(of, AT_ONCE))
