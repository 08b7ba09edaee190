"""The commands of a tenant's documents: docs add, list, remove, search."""

import argparse
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from memory_engine.cli.commands import (
    NEAR_MAX,
    Command,
    Option,
    WrongArgument,
    always,
    existing,
    positive,
    whole,
    writable,
)
from memory_engine.cli.options import FOUND_PROBLEMS, did_you_mean
from memory_engine.cli.standard import check_one_is_there, limits
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.excerpts import counted, duration, escaped, number
from memory_engine.core.json_form import named
from memory_engine.engine import Engine
from memory_engine.recall.hits import Found, Hit
from memory_engine.reports import Column, Line, Paper, Printout, line, table_of
from memory_engine.views.documents.fold import Document, DocumentReport, document_id_of
from memory_engine.views.documents.readers.splitting import Splitting
from memory_engine.views.documents.view import Documents

FAILURES_SHOWN_MAX = 20
TENANTS_SHOWN_MAX = 5
WIDTH_MAX = 110
_INDENT = "   "


def _declare_tenant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tenant", required=True, metavar="T", help="whose documents they are")


def _declare_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files and folders; a Slack export as folder or zip")
    default = Splitting()
    parser.add_argument(
        "--chars",
        type=positive,
        default=default.chars,
        metavar="N",
        help=f"the most characters of a passage (default: {default.chars})",
    )
    parser.add_argument(
        "--overlap",
        type=whole,
        default=default.overlap,
        metavar="N",
        help=f"how many of them repeat the end of the passage before (default: {default.overlap})",
    )
    limits("file_bytes=99000000")(parser)


async def add(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Add files. Returns 1 if one of them could not be read."""
    splitting = Splitting(chars=asked.chars, overlap=asked.overlap)
    check_one_is_there(asked.paths)
    begun = time.perf_counter()

    def shown(now: DocumentReport) -> None:
        progress.update({"files": now.files, "new": now.added, "changed": now.changed, "failed": len(now.failed)})

    async with writable(asked.db, plugins=asked.plugins) as engine:
        documents = engine.tenant(asked.tenant).documents
        with Progress("reading", terminal) as progress:
            report = await documents.ingest(asked.paths, splitting=splitting, limits=asked.limits, progress=shown)
    seconds = time.perf_counter() - begun
    done = named(report, "files added changed unchanged removed passages ended skipped")
    failed = [named(one, "path place why limit") for one in report.failed]
    terminal.json({**done, "failed": failed, "seconds": round(seconds, 3)})
    _put_report(report, asked.tenant, seconds, terminal)
    return FOUND_PROBLEMS if report.failed else 0


def _put_report(report: DocumentReport, tenant: str, seconds: float, terminal: Terminal) -> None:
    became = [
        f"{number(count)} {what}"
        for count, what in (
            (report.added, "new"),
            (report.changed, "changed"),
            (report.unchanged, "unchanged"),
            (report.removed, "gone"),
        )
        if count
    ]
    several = "" if report.added + report.changed + report.unchanged + report.removed == 1 else "s"
    head = f"{counted(report.files, 'file')} for tenant {tenant}: {', '.join(became) or 'no'} document{several}"
    written = f"{counted(report.passages, 'passage')} written" if report.passages else "nothing written"
    ended = f", {number(report.ended)} ended" if report.ended else ""
    terminal.say(f"{head}, {written}{ended} in {duration(seconds)}")
    if report.skipped:
        terminal.say(f"{counted(len(report.skipped), 'file')} of other formats skipped; --json lists them")
    if terminal.as_json:
        return
    for error in report.failed[:FAILURES_SHOWN_MAX]:
        terminal.error(f"{error}")
    if len(report.failed) > FAILURES_SHOWN_MAX:
        terminal.warn(f"… and {number(len(report.failed) - FAILURES_SHOWN_MAX)} more; --json lists them")


async def listing(engine: Engine, asked: argparse.Namespace) -> Printout:
    """Documents by their ids."""
    try:
        found = await engine.tenant(asked.tenant).documents.list(at=asked.at)
    except ValueError as error:
        raise WrongArgument(str(error)) from None
    none = "" if found else await _no_documents(engine, asked.tenant)
    heads = [Column("ID", least=12), Column("TITLE", least=12), Column("FORMAT"), Column("DATE")]
    heads += [Column("AUTHOR", least=8), Column("PASSAGES", right=True)]
    rows = [(one.id, one.title, one.format, _day(one), one.author or "-", number(len(one.passages))) for one in found]
    return Printout([_as_json(document) for document in found], [table_of(heads, rows, none)])


async def _no_documents(engine: Engine, tenant: str) -> str:
    """Says that a tenant has none, and who may have been meant."""
    others = {info.tenant_id for info in await engine.threads(kind="tenant", limit=NEAR_MAX)} - {tenant}
    near = did_you_mean(tenant, sorted(others))
    known = "" if near or not others else f"; tenants here: {', '.join(sorted(others)[:TENANTS_SHOWN_MAX])}"
    return f"tenant {tenant} has no documents{near or known}"


def _day(document: Document) -> str:
    return "-" if document.date is None else f"{document.date:%Y-%m-%d}"


def _as_json(document: Document) -> dict[str, object]:
    return {
        **named(document, "id title format source author date channel thread metadata"),
        "passages": len(document.passages),
        **named(document, "digest seqs"),
    }


def _declare_remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="DOCUMENT", nargs="+", help="a document's id, or the path of files or folders")
    parser.add_argument("--reason", default="", help="why, for the log")


async def remove(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Remove documents. Returns 1 if there is no document of a name."""
    removed: dict[str, int] = {}
    async with existing(asked.db, plugins=asked.plugins) as engine:
        documents = engine.tenant(asked.tenant).documents
        for name in asked.names:
            removed[name] = await _remove(documents, name, asked.reason)
    unknown = [name for name, count in removed.items() if not count]
    terminal.json({"removed": removed, "unknown": unknown})
    terminal.say(f"{counted(sum(removed.values()), 'document')} of tenant {asked.tenant} removed")
    if not terminal.as_json:
        for name in unknown:
            why = "no document has this id or path; `docs list` shows them all"
            terminal.error(f"{name}: {why}")
    return FOUND_PROBLEMS if unknown else 0


async def _remove(documents: Documents, name: str, reason: str) -> int:
    return await documents.remove(name, reason=reason) or await documents.remove(Path(name), reason=reason)


async def search(engine: Engine, asked: argparse.Namespace) -> Printout:
    """The passages that answer a question best."""
    documents = engine.tenant(asked.tenant).documents
    try:
        found = await documents.search(asked.query, limit=asked.limit, at=asked.at)
        known = {one.id: one for one in await documents.list(at=asked.at)}
        none = "nothing was found" if known or found else await _no_documents(engine, asked.tenant)
    except ValueError as error:
        raise WrongArgument(str(error)) from None
    hits = [_hit_as_data(hit, known) for hit in found]
    return Printout(
        {"query": asked.query, **named(found, "how failure waiting unindexed"), "hits": hits},
        [lambda paper: _hits(found, known, paper)] if found else [line(none)],
        warnings=[f"found by words alone: {found.failure}"] if found.failure else [],
    )


def _hit_as_data(hit: Hit, known: Mapping[str, Document]) -> dict[str, object]:
    document_id = document_id_of(hit.key)
    described = named(known[document_id], "title source channel") if document_id in known else _UNKNOWN
    return {"document": document_id, **described, **named(hit, "about speaker at score why text seq event_id")}


_UNKNOWN = {"title": "", "source": "", "channel": ""}


def _hits(found: Found, known: Mapping[str, Document], paper: Paper) -> Iterator[Line]:
    for n, hit in enumerate(found, 1):
        document = known.get(document_id_of(hit.key))
        title = hit.about or (document.title if document is not None else "")
        yield (f"{n:>2} ", ""), (escaped(title), "bold")
        source = (document.source or document.id) if document is not None else document_id_of(hit.key)
        dated = document is not None and document.date is not None
        day = f"{hit.at:%Y-%m-%d}" if dated else f"added {hit.at:%Y-%m-%d}"
        facts = (source, hit.speaker, day, f"score {hit.score:.2f}", hit.why)
        yield line(_INDENT + " · ".join(filter(None, facts)), "dim")
        for text in textwrap.wrap(" ".join(hit.text.split()), min(paper.width, WIDTH_MAX) - len(_INDENT)):
            yield line(_INDENT + text)


_AT = Option.value("--at", "SEQ", "as of this event of the tenant's thread", whole)
_ACTIONS = {
    "add": ("add files and folders; unchanged ones write nothing", Command(_declare_add, add)),
    "list": ("list documents", Command.of_store(listing, _AT, writes=always)),
    "remove": ("remove documents, with all their passages", Command(_declare_remove, remove)),
    "search": (
        "print the passages that answer a question best",
        Command.of_store(
            search,
            Option.value("query", "QUERY", "a question, or words"),
            Option.value("--limit", "N", "the best N passages (default: 10)", positive, default=10),
            _AT,
            writes=always,
        ),
    ),
}
DOCS = Command.of_actions(_ACTIONS, _declare_tenant)
