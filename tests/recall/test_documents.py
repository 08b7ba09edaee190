"""A tenant's documents: brought, brought again, changed, removed, forgotten, found."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, EngineConfig, errors
from memory_engine.core.clock import to_datetime
from memory_engine.events import DocumentAdded, DocumentRemoved, MemoryForget
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore
from memory_engine.views.documents.fold import Described, document_id_of, document_prefix
from memory_engine.views.documents.readers.splitting import Splitting, split
from memory_engine.views.documents.readers.text import text_document
from memory_engine.views.documents.view import Documents

HANDBOOK = """\
# Handbook

We sell bicycles.

## Refunds

Refunds take fourteen days.

## Shipping

Parcels leave on Mondays.
"""


async def texts(documents: Documents, id: str | Path) -> list[str]:
    """The passages of a document in reading order."""
    return [passage.text for passage in await documents.passages(id)]


async def count(engine: Engine, tenant: str = "acme") -> int:
    """How many events a tenant's thread has."""
    return (await engine.tenant(tenant).info()).events


async def found(documents: Documents, query: str, at: int | None = None) -> list[str]:
    """What a search finds."""
    return [hit.text for hit in await documents.search(query, at=at)]


async def test_S7_a_text_is_cut_under_its_headings(engine: Engine) -> None:
    """A passage for each section, with the headings above it, in reading order."""
    documents = engine.tenant("acme").documents
    (document,) = await documents.add(HANDBOOK, id="handbook")
    passages = await documents.passages("handbook")
    assert ("Handbook", "markdown", 3) == (document.title, document.format, len(document.passages))
    assert [("", "We sell bicycles."), ("Refunds", "Refunds take fourteen days.")] == [
        (passage.about, passage.text) for passage in passages[:2]
    ]


async def test_S7_looking_makes_nothing(engine: Engine) -> None:
    """A tenant without documents has none, and no thread."""
    documents = engine.tenant("acme").documents
    assert ((), None, 0) == (await documents.list(), await documents.get("x"), await documents.remove("x"))
    assert ((), []) == (await documents.passages("x"), await engine.threads())


async def test_S7_an_unchanged_document_writes_nothing(tmp_path: Path) -> None:
    """Brought again: the log is as long as it was."""
    (tmp_path / "handbook.md").write_text(HANDBOOK)
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        await documents.ingest([tmp_path])
        before = await count(engine)
        report = await documents.ingest([tmp_path])
        assert (1, 1, 0, 0) == (before, report.unchanged, report.passages, report.added + report.changed)
        assert before == await count(engine)


async def test_S7_one_changed_paragraph_is_one_event_with_only_that(tmp_path: Path) -> None:
    """The new event holds the new passage and ends the old one; the order is that of the file."""
    file = tmp_path / "handbook.md"
    file.write_text(HANDBOOK)
    async with memory_engine.open(":memory:") as engine:
        tenant = engine.tenant("acme")
        await tenant.documents.add(file)
        file.write_text(HANDBOOK.replace("fourteen", "thirty"))
        await tenant.documents.add(file)
        added = [recorded.event async for recorded in tenant.events()]
        assert isinstance(added[1], DocumentAdded)
        (splice,) = added[1].splices
        assert (2, 1, ["Refunds take thirty days."], 1) == (
            len(added), splice.at, [passage.text for passage in splice.passages], len(splice.ended)
        )  # fmt: skip
        assert ["We sell bicycles.", "Refunds take thirty days.", "Parcels leave on Mondays."] == await texts(
            tenant.documents, file
        )


async def test_S7_a_small_change_of_a_long_text_stays_small() -> None:
    """Without a heading to stop at, the passages meet again soon after the change."""
    lines = [f"Paragraph {n} tells of order {n * n}, which came late and was sent back." for n in range(3_000)]
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        first = await documents.add_text("\n\n".join(lines), title="Orders", id="orders")
        lines[1_500] = "Nothing came."
        second = await documents.add_text("\n\n".join(lines), title="Orders", id="orders")
        new = [place for place in second.passages if place.seq == second.seq]
        assert len(first.passages) > 256
        assert 1 <= len(new) <= 20


async def test_S7_a_large_document_is_several_events_of_one_commit() -> None:
    """No event holds more than 256 passages; all of them say which part they are."""
    text = "\n\n".join(f"Line {n} " + "word " * 120 for n in range(600))
    async with memory_engine.open(":memory:") as engine:
        tenant = engine.tenant("acme")
        document = await tenant.documents.add_text(text, title="Long", id="long")
        events = [recorded.event async for recorded in tenant.events() if isinstance(recorded.event, DocumentAdded)]
        sizes = [sum(len(splice.passages) for splice in event.splices) for event in events]
        assert (600, tuple(range(1, len(events) + 1))) == (sum(sizes), document.seqs)
        assert max(sizes) <= 256
        assert [(n, len(events)) for n in range(1, len(events) + 1)] == [(event.part, event.parts) for event in events]
        assert [f"Line {n} " for n in range(600)] == [
            text[: len(f"Line {n} ")] for n, text in enumerate(await texts(tenant.documents, "long"))
        ]


PARAGRAPHS = st.lists(st.sampled_from(["ant ", "bee ", "cat ", "dog "]).map(lambda word: word * 60), max_size=7)


@settings(max_examples=40)
@given(st.lists(PARAGRAPHS.filter(bool), min_size=1, max_size=5))
async def test_S7_whatever_the_way_there_a_document_is_its_last_version(versions: Sequence[Sequence[str]]) -> None:
    """After any changes, twins and moves too, the passages are those of the last text, each key once."""
    splitting = Splitting(chars=250, overlap=0)
    async with memory_engine.open(":memory:") as engine:
        tenant = engine.tenant("acme")
        for version in versions:
            await tenant.documents.add_text("\n\n".join(version), title="T", id="t", splitting=splitting)
        document = await tenant.documents.get("t")
        assert document is not None
        last = text_document("\n\n".join(versions[-1]), "t", "T")
        assert [piece.text for piece in split(last.sections, splitting)] == await texts(tenant.documents, "t")
        keys = [place.key for place in document.passages]
        assert len(keys) == len(set(keys))
        assert (await tenant.replay.verify()).divergence is None


async def test_S7_a_removed_document_is_found_as_of_no_seq(engine: Engine) -> None:
    """Every passage that it ever had goes from the search, at any seq; other documents stay."""
    documents = engine.tenant("acme").documents
    await documents.add_text("Refunds take fourteen days.", title="Refunds", id="a")
    await documents.add_text("Refunds take thirty days.", title="Refunds", id="a")
    await documents.add_text("Refunds of gifts are vouchers.", title="Gifts", id="a:b")
    assert {"Refunds take thirty days.", "Refunds of gifts are vouchers."} == set(await found(documents, "refunds"))
    assert ["Refunds take fourteen days."] == await found(documents, "fourteen", at=1)
    assert 1 == await documents.remove("a", reason="wrong")
    assert ["Refunds of gifts are vouchers."] == await found(documents, "refunds")
    assert [[], []] == [await found(documents, "fourteen thirty", at=at) for at in (1, 2)]
    assert ["a:b"] == [document.id for document in await documents.list()]


async def test_S7_what_a_new_version_lacks_is_found_as_of_the_old_one(engine: Engine) -> None:
    """A change ends passages; a search as of an earlier seq still finds them."""
    documents = engine.tenant("acme").documents
    await documents.add(HANDBOOK, id="h")
    await documents.add(HANDBOOK.replace("fourteen", "thirty"), id="h")
    assert "Refunds take thirty days." == (await found(documents, "how long do refunds take"))[0]
    assert "Refunds take fourteen days." == (await found(documents, "how long do refunds take", at=1))[0]


async def test_S7_a_removed_document_can_come_back(engine: Engine) -> None:
    """The same text again is a new document: it is not taken for the event that was there before."""
    documents = engine.tenant("acme").documents
    for _ in range(3):
        await documents.add(HANDBOOK, id="h")
        assert 3 == len(await documents.passages("h"))
        assert 1 == await documents.remove("h")
    assert (6, ()) == (await count(engine), await documents.list())


async def test_S7_a_hit_leads_back_to_its_document() -> None:
    """Author, title and heading, date, and the document's id in the key, whatever the id."""
    described = Described(author="Ann", source="wiki", date=to_datetime(1_700_000_000_000_000))
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        await documents.add_text(HANDBOOK, title="House rules", id="wiki:1/2%3A é", described=described)
        (hit, *_) = await documents.search("parcels")
        assert ("document", "Ann", "House rules > Handbook > Shipping") == (hit.kind, hit.speaker, hit.about)
        assert ("wiki:1/2%3A é", 2023) == (document_id_of(hit.key), hit.at.year)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"])))
def test_S7_no_document_has_the_prefix_of_another(one: str, rest: str) -> None:
    """A key gives back its document's id, and a prefix is that of no longer id."""
    assert one == document_id_of(document_prefix(one) + "0123")
    assert not rest or not document_prefix(one + rest).startswith(document_prefix(one))


async def test_S7_tenants_do_not_see_each_others_documents(engine: Engine) -> None:
    """Neither list, nor get, nor search crosses from one tenant to another."""
    acme, other = engine.tenant("acme").documents, engine.tenant("other").documents
    await acme.add(HANDBOOK, id="h")
    await other.add_text("Refunds are not given.", title="Rules", id="r")
    assert (["h"], ["r"]) == ([one.id for one in await acme.list()], [one.id for one in await other.list()])
    assert (None, 0) == (await other.get("h"), await other.remove("h"))
    assert ["Refunds are not given."] == await found(other, "refunds")


async def test_S7_forgetting_reaches_documents(engine: Engine) -> None:
    """A forgotten event's passages are gone from document and search; brought again, they are there again."""
    tenant = engine.tenant("acme")
    await tenant.documents.add(HANDBOOK, id="h")
    changed = HANDBOOK.replace("fourteen", "thirty")
    await tenant.documents.add(changed, id="h")
    await found(tenant.documents, "refunds")
    (latest,) = await tenant.replay.latest(1)
    await tenant.forget(event_ids=[latest.id])
    document = await tenant.documents.get("h")
    assert document is not None
    assert ("h", "", 2) == (document.title, document.digest, len(document.passages))
    assert [] == await found(tenant.documents, "thirty")
    await tenant.documents.add(changed, id="h")
    assert ["Refunds take thirty days."] == (await texts(tenant.documents, "h"))[1:2]


async def test_S7_a_document_of_which_all_is_forgotten_is_gone(engine: Engine) -> None:
    """Nothing of it stays in the view, not even its id; it may come back."""
    tenant = engine.tenant("acme")
    await tenant.documents.add(HANDBOOK, id="secret")
    (event,) = await tenant.replay.latest(1)
    await tenant.forget(event_ids=[event.id])
    assert "secret" not in str(await tenant.views.read("documents"))
    await tenant.documents.add(HANDBOOK, id="secret")
    assert 3 == len(await tenant.documents.passages("secret"))


async def test_S7_two_who_bring_the_same_document_bring_it_once(engine: Engine) -> None:
    """At the same time: equal versions are one event, differing ones follow each other."""
    tenant = engine.tenant("acme")
    same = [tenant.documents.add(HANDBOOK, id="h") for _ in range(4)]
    await asyncio.gather(*same)
    assert 1 == await count(engine)
    differing = [HANDBOOK.replace("fourteen", f"{n}") for n in range(4)]
    await asyncio.gather(*(tenant.documents.add(text, id="h") for text in differing))
    assert [text for text in await texts(tenant.documents, "h") if "Refunds" in text] in [
        [f"Refunds take {n} days."] for n in range(4)
    ]
    assert 3 == len(await tenant.documents.passages("h"))


async def test_S7_two_processes_do_not_mix_their_versions(tmp_path: Path) -> None:
    """Engines on one file that change one document from the same state on: one goes first, then the other."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as one, memory_engine.open(path) as two:
        await one.tenant("acme").documents.add(HANDBOOK, id="h")
        assert 3 == len(await two.tenant("acme").documents.passages("h"))
        await one.tenant("acme").documents.add(HANDBOOK.replace("fourteen", "ten"), id="h")
        await two.tenant("acme").documents.add(HANDBOOK.replace("fourteen", "twenty"), id="h")
    async with memory_engine.open(path) as engine:
        found = await texts(engine.tenant("acme").documents, "h")
        assert ["We sell bicycles.", "Refunds take twenty days.", "Parcels leave on Mondays."] == found


async def test_S7_a_thousand_files_the_broken_ones_named(tmp_path: Path) -> None:
    """All that can be read is brought; what cannot is named, with place and reason."""
    for n in range(1_000):
        (tmp_path / f"{n:04}.txt").write_text(f"Order {n} was sent to customer {n * 7}.")
    (tmp_path / "binary.md").write_bytes(b"\x89PNG\r\n\x00\x00")
    (tmp_path / "empty.eml").write_bytes(b"")
    (tmp_path / "talk.vtt").write_text("WEBVTT\n\n00:00 --> soon\nHello\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / ".hidden.md").write_text("secret")
    steps: list[int] = []
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        report = await documents.ingest([tmp_path], progress=lambda now: steps.append(now.files))
        assert (1_000, 1_003, 1_004) == (report.added, report.files, len(steps))
        assert [
            f"{tmp_path}/binary.md: byte 6: it is binary: a NUL byte stands in it",
            f"{tmp_path}/empty.eml: it is empty",
            f"{tmp_path}/talk.vtt: line 3: no times can be read from '00:00 --> soon'",
        ] == [str(error) for error in report.failed]
        assert [str(tmp_path / "picture.png")] == report.skipped
        again = await documents.ingest([tmp_path])
        assert (1_000, 0) == (again.unchanged, again.passages)
        assert 1_000 == await documents.remove(tmp_path)


async def test_S7_small_documents_come_many_in_a_commit(tmp_path: Path) -> None:
    """One that is refused is named, and the others come."""
    for n in range(10):
        (tmp_path / f"{n}.txt").write_text("Order " + ("was sent. " * 1_000 if n == 7 else f"{n} was sent."))
    (tmp_path / "void.txt").write_text(" ")
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store) as engine:
        documents = engine.tenant("acme").documents
        report = await documents.ingest([tmp_path])
        assert (10, 11, 1) == (report.added, report.files, len(report.failed))
        assert 2 >= store.commits
    async with memory_engine.open(":memory:", config=EngineConfig(event_bytes_max=4_000)) as engine:
        report = await engine.tenant("acme").documents.ingest([tmp_path])
        assert (9, 11, ["7.txt", "void.txt"]) == (
            report.added, report.files, [Path(error.path).name for error in report.failed]
        )  # fmt: skip
        assert 9 == await count(engine)


async def test_S7_two_who_bring_the_same_folder_bring_it_once(tmp_path: Path) -> None:
    """At the same time, over one file: no document comes twice, and none is missing."""
    folder, path = tmp_path / "folder", str(tmp_path / "m.db")
    folder.mkdir()
    for n in range(100):
        (folder / f"{n:02}.txt").write_text(f"Order {n} was sent.")
    async with memory_engine.open(path) as one, memory_engine.open(path) as two:
        reports = await asyncio.gather(*(engine.tenant("acme").documents.ingest([folder]) for engine in (one, two)))
    async with memory_engine.open(path) as engine:
        assert (100, 100) == (await count(engine), len(await engine.tenant("acme").documents.list()))
        assert [] == [error for report in reports for error in report.failed]


async def test_S7_folders_are_walked_once(tmp_path: Path) -> None:
    """Links that lead back end; a file that is reached twice, or is named too, is read once."""
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "a.md").write_text("# A\n\nOne.")
    (inner / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.md")
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        report = await documents.ingest([tmp_path, inner / "a.md", tmp_path / "missing.md"])
        assert (1, 1) == (report.added, report.files)
        assert [
            f"{tmp_path}/gone.md: it cannot be read: No such file or directory",
            f"{tmp_path}/pipe.md: it is neither a file nor a folder",
            f"{tmp_path}/missing.md: it cannot be read: No such file or directory",
        ] == [str(error) for error in report.failed]


async def test_S7_a_file_of_no_known_format_is_text_where_it_is_named(tmp_path: Path) -> None:
    """In a folder it would be passed over."""
    (tmp_path / "NOTICE").write_text("All rights reserved.")
    async with memory_engine.open(":memory:") as engine:
        (document,) = await engine.tenant("acme").documents.add(tmp_path / "NOTICE")
        assert ("NOTICE", "text", f"{tmp_path}/NOTICE") == (document.title, document.format, document.source)


async def test_S7_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """Over 50 MB: before it is read."""
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(50 * 1024 * 1024 + 1)
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(errors.UnreadableDocument, match="52,428,801 bytes; the limit is 52,428,800"):
            await engine.tenant("acme").documents.add(tmp_path / "huge.txt")


@pytest.mark.parametrize(
    ("text", "title", "why"),
    [("", "T", "no words"), (" \n\t ", "T", "no words"), ("x", " ", "give it one"), ("\ud800", "T", "lone surrogate")],
)
async def test_S7_a_text_of_nothing_is_refused(engine: Engine, text: str, title: str, why: str) -> None:
    """Before anything is written."""
    with pytest.raises(errors.InvalidDocument, match=why):
        await engine.tenant("acme").documents.add_text(text, title=title, id="t")
    assert [] == await engine.threads()


async def test_S7_the_view_equals_its_past(tmp_path: Path) -> None:
    """As of an earlier seq the documents are those of then; so they are after a restart and a rebuild."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        documents = engine.tenant("acme").documents
        await documents.add(HANDBOOK, id="h")
        before = await documents.list()
        await documents.add(HANDBOOK.replace("fourteen", "ten"), id="h")
        await documents.add_text("More.", title="More", id="m")
        await documents.remove("m")
        now = await documents.list()
    async with memory_engine.open(path) as engine:
        tenant = engine.tenant("acme")
        assert (before, now) == (await tenant.documents.list(at=1), await tenant.documents.list())
        assert (await tenant.replay.verify()).ok
        await tenant.replay.rebuild()
        assert now == await tenant.documents.list()


async def test_S7_odd_events_break_nothing(engine: Engine) -> None:
    """An event that fits no document that is there, sent by hand, is folded all the same."""
    tenant = engine.tenant("acme")
    for event in (
        DocumentRemoved(document_id="x", seqs=(9,)),
        DocumentAdded(document_id="x", title="X", splices=()),
        MemoryForget(seqs=(1, 2, 77)),
        DocumentRemoved(document_id="x"),
    ):
        await tenant.dispatch(event)
    assert () == await tenant.documents.list()
    assert (await tenant.replay.verify()).ok
