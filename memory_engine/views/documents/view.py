"""`engine.tenant(id).documents`: an organisation's papers, mails, chats and calls."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path

from attrs import define, evolve, field, frozen

from memory_engine.core.arguments import PathLike, checked_call, checked_file, checked_text, checked_type
from memory_engine.core.aside import on_thread
from memory_engine.core.events.base import Event
from memory_engine.core.ids import check_identifier
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.core.records import NewEvent, Receipt
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

TRIES_MAX = 5
"""How often a change is recomputed when others change the same document."""
AT_ONCE = 64
"""Files and documents that are read in one go in a worker thread, and come in one commit."""
CHARS_AT_ONCE = 128 * 1024
"""Of longer texts fewer come in one go."""
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
        read = await on_thread(lambda: _given_document(plain, id or f"text:{digest[:24]}", title, described))
        [change] = await self._changed({read.id: partial(_document_changes, read, _Ingestion(splitting))})
        if isinstance(change, InvalidInput):
            raise change
        # another may have removed it by now
        document = await self.get(read.id) or await self.get(read.id, at=change.seq)
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
        """The passages of a document now, in reading order; empty if there is no such document."""
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
            await self._changed({one: partial(_removal, reason=reason)})
        return len(wanted)

    async def search(self, query: str, *, limit: int = 10, at: int | None = None) -> Found:
        """The passages that best answer a question, best first; `document_id_of(hit.key)` gives their document.

        `at` searches the documents as of an earlier seq of the tenant's thread.
        """
        return await search_thread(self._tenant, query, kinds=("document",), limit=limit, at=at)

    async def _ingest(self, paths: Sequence[Path], run: "_Ingestion") -> DocumentReport:
        report = run.report
        read = _load_parts(find(paths), run.limits)
        while some := await on_thread(partial(_some, read)):
            for group in _distinct(some):
                await self._put_all(group, run)
            for one in some:
                run.note(one)
        if report.added or report.changed:
            await self._tenant.kernel[Recall].index_words(self._tenant.id)
        return report

    async def _put_all(self, documents: Sequence["_ReadPart"], run: "_Ingestion") -> None:
        """Bring documents to the versions that were read: all in one commit, or each for itself if one is refused."""
        wanted = {
            one.part.id: partial(_document_changes, one.part, run) for one in documents if isinstance(one.part, Loaded)
        }
        try:
            changed = await self._changed(wanted)
        except InvalidInput as error:
            if len(documents) > 1:
                for one in documents:
                    await self._put_all((one,), run)
                return
            changed = [error]
        for one, change in zip(documents, changed, strict=True):
            run.put(one, change)

    async def _changed(self, wanted: Mapping[str, "_Wanted"]) -> "Sequence[_DocumentChange | InvalidInput]":
        """Dispatch the events that are wanted for documents, all or none; computed again after a concurrent change.

        For each the change, or the reason for none: the others are changed.
        """
        kernel, tries = self._tenant.kernel, 0
        while True:
            rows = await self._tenant.rows(DOCUMENTS)
            known = [(document_of(rows, one), changed_at(rows, one)) for one in wanted]
            runtime = kernel[OpenThreads].get(self._tenant.id)
            extractors = kernel.extractors if runtime is not None and runtime.indexed else None
            changed = await on_thread(partial(_computed, wanted, known, self._tenant.id, extractors))
            events = [event for change in changed if isinstance(change, _DocumentChange) for event in change.events]
            try:
                receipts = iter(await self._tenant.dispatch_all(events))
            except IdempotencyConflict:
                tries += 1
                if tries == TRIES_MAX:
                    raise
                await asyncio.sleep(kernel.config.follow_s)  # until another process's change is seen
            else:
                return [change.at(receipts) if isinstance(change, _DocumentChange) else change for change in changed]


_Wanted = Callable[[Document | None], Sequence[Event]]
"""The events that turn a known document (`None`: a new one) into the wanted one."""


@frozen
class _DocumentChange:
    """The events that change a document, and the seq of the last of them, or of the document's last change before."""

    is_new: bool
    events: Sequence[NewEvent]
    seq: int

    def at(self, receipts: Iterator[Receipt]) -> "_DocumentChange":
        """The change once it is recorded. Takes as many receipts as it has events."""
        seqs = [receipt.seq for receipt in islice(receipts, len(self.events))]
        return evolve(self, seq=seqs[-1]) if seqs else self


@frozen
class _ReadPart:
    """A part of a file: a document, or a fault. Without either it is the file's end, or its replacement."""

    found: File | SkippedFile | UnreadableDocument
    part: Loaded | UnreadableDocument | None = None


@define
class _Ingestion:
    """One ingestion: its options, its report, and the ids of the documents that it met."""

    splitting: Splitting
    limits: ReadingLimits = DEFAULT_LIMITS
    progress: Callable[[DocumentReport], None] | None = None
    taken: "list[str]" = field(factory=list)
    report: DocumentReport = field(factory=DocumentReport)

    def put(self, read: _ReadPart, change: _DocumentChange | InvalidInput) -> None:
        """Count the change of a document that was read, or note why it was refused."""
        found, loaded = read.found, read.part
        assert isinstance(found, File)
        assert isinstance(loaded, Loaded)
        if isinstance(change, InvalidInput):
            self.report.failed.append(_failure(found, "" if loaded.id == found.name else loaded.id, change))
            return
        events = [new.event for new in change.events]
        self.report.count(events, is_new=change.is_new, is_there=_has_text(loaded))
        self.taken.append(loaded.id)

    def note(self, read: _ReadPart) -> None:
        """Note the fault of a part of a file, or a file's end."""
        found, report = read.found, self.report
        if isinstance(read.part, UnreadableDocument):
            report.failed.append(read.part)
        if read.part is not None:
            return
        if isinstance(found, SkippedFile):
            report.skipped.append(found.path)
        elif isinstance(found, UnreadableDocument):
            report.failed.append(found)
        else:
            report.files += 1
        if self.progress is not None:
            self.progress(report)


def _computed(
    wanted: Mapping[str, _Wanted],
    known: Sequence[tuple[Document | None, int]],
    thread_id: str,
    extractors: Extractors | None,
) -> Sequence[_DocumentChange | InvalidInput]:
    """The change of each document, with the words of its passages taken where the commit will index these.

    `known` are the known documents, with the seqs of the last events that changed them.
    """
    changed: list[_DocumentChange | InvalidInput] = []
    for (name, events_for), (document, base) in zip(wanted.items(), known, strict=True):
        try:
            events = events_for(document)
        except InvalidInput as error:
            changed.append(error)
            continue
        changed.append(_DocumentChange(document is None, with_ids(events, name, thread_id, base), base))
        if extractors is not None:
            for event in events:
                extractors.take(event)
    return changed


def _document_changes(loaded: Loaded, run: _Ingestion, known: Document | None) -> Sequence[Event]:
    """The events that turn a known document into the loaded one. Raises `InvalidInput`."""
    check_identifier("document id", loaded.id)
    if _has_text(loaded):
        return changes(known, loaded, run.splitting, run.limits)
    if loaded.may_be_empty:
        return _removal(known, "no longer in its source")
    raise InvalidDocument("text", "", "it holds no words")


def _has_text(loaded: Loaded) -> bool:
    return any(section.text.strip() for section in loaded.sections)


def _load_parts(found: Iterator[File | SkippedFile | UnreadableDocument], limits: ReadingLimits) -> Iterator[_ReadPart]:
    """The parts of each file, then its end."""
    for one in found:
        if isinstance(one, File):
            try:
                yield from (_ReadPart(one, part) for part in load(one, limits))
            except MissingExtra as error:
                yield _ReadPart(one, _failure(one, "", error))
        yield _ReadPart(one)


def _some(read: Iterator[_ReadPart]) -> Sequence[_ReadPart]:
    """The next parts: a fixed number, fewer long ones."""
    some: list[_ReadPart] = []
    chars = 0
    while chars < CHARS_AT_ONCE and len(some) < AT_ONCE and (one := next(read, None)) is not None:
        some.append(one)
        if isinstance(one.part, Loaded):
            chars += sum(len(section.text) for section in one.part.sections)
    return some


def _distinct(read: Iterable[_ReadPart]) -> Iterator[Sequence[_ReadPart]]:
    """The documents among what was read, in their order, in groups in which no id comes twice."""
    group: dict[str, _ReadPart] = {}
    for one in read:
        if isinstance(one.part, Loaded):
            if one.part.id in group:
                yield tuple(group.values())
                group = {}
            group[one.part.id] = one
    if group:
        yield tuple(group.values())


def _given_document(text: str, id: str, title: str, described: Described) -> Loaded:
    """A text given by the caller, under its title."""
    is_markdown = any(line.startswith("#") for line in text.splitlines())
    read = markdown_document(text, id, title, is_titled=True) if is_markdown else text_document(text, id, title)
    return evolve(
        read,
        source=described.source,
        author=described.author or read.author,
        date=read.date if described.date is None else _utc_date(described.date),
        channel=described.channel,
        thread=described.thread,
        metadata={**read.metadata, **described.metadata},
    )


def _utc_date(given: datetime) -> datetime:
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
