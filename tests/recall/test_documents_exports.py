"""What is read from Slack exports and PDF files; and what is said of broken ones."""

import json
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

import memory_engine
from memory_engine import errors
from tests.recall.document_files import Files, pdf, read, shown, without


@pytest.fixture
def make(tmp_path: Path) -> Files:
    """Write a file."""
    return Files(tmp_path)


# Slack

USERS = [
    {"id": "U1", "name": "ann", "profile": {"real_name": "Ann Lee"}},
    {"id": "U2", "name": "ben", "real_name": "Ben"},
]
DAY: list[dict[str, object]] = [
    {"type": "message", "user": "U1", "ts": "1730624400.000100", "text": "Why did <!here> users spike? <@U2>",
     "thread_ts": "1730624400.000100"},
    {"type": "message", "user": "U1", "ts": "1730624500.000100",
     "text": "See <https://x.y|the chart> &amp; <#C9|data>"},
    {"type": "message", "user": "U1", "ts": "1730624600.000100", "text": "Look again."},
    {"type": "message", "subtype": "channel_join", "user": "U2", "ts": "1730624700.000100", "text": "joined"},
    {"type": "message", "user": "U2", "ts": "1730624800.000100", "text": "", "files": [{"title": "report.pdf"}]},
]  # fmt: skip
NEXT = [{"user": "U2", "ts": "1730710800.000200", "text": "The campaign.", "thread_ts": "1730624400.000100"}]
EXPORT: Mapping[str, object] = {
    "users.json": USERS,
    "channels.json": [{"id": "C1", "name": "growth"}],
    "dms.json": [{"id": "D1", "members": ["U1", "U2"]}],
    "growth/2024-11-03.json": DAY,
    "growth/2024-11-04.json": NEXT,
    "D1/2024-11-03.json": [{"user": "U1", "ts": "1730624400.000300", "text": "Psst."}],
}


def export(folder: Path, files: Mapping[str, object] = EXPORT) -> Path:
    """Write an export as a folder."""
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


def zipped(path: Path, files: Mapping[str, object] = EXPORT, root: str = "") -> Path:
    """Write an export as a zip."""
    with zipfile.ZipFile(path, "w") as file:
        for name, value in files.items():
            file.writestr(root + name, value if isinstance(value, str) else json.dumps(value))
    return path


def test_S7_a_slack_export_is_threads_and_days(tmp_path: Path) -> None:
    """Threads with their parent across days, the rest by day; names for ids; noise left out."""
    by_id = {document.id: document for document in read(export(tmp_path))}
    thread, day, empty, direct = (
        by_id[f"slack:{own}"] for own in ("C1/1730624400.000100", "C1/2024-11-03", "C1/2024-11-04", "D1/2024-11-03")
    )
    assert ("#growth: Why did @here users spike? @Ben", "#growth", "1730624400.000100", "Ann Lee") == (
        thread.title, thread.channel, thread.thread, thread.author
    )  # fmt: skip
    assert [("", "Ann Lee", "Why did @here users spike? @Ben"), ("", "Ben", "The campaign.")] == shown(thread)
    assert 1_730_710_800_000_200 == thread.sections[1].at_us
    assert [
        ("", "Ann Lee", "See the chart (https://x.y) & #data\nLook again."),
        ("", "Ben", "report.pdf"),
    ] == shown(day)
    assert ("#growth, 2024-11-03", datetime(2024, 11, 3, 9, 1, 40, 100, tzinfo=UTC)) == (day.title, day.date)
    assert ((), True) == (empty.sections, empty.may_be_empty)
    assert ("Ann Lee, Ben", "") == (direct.channel, direct.thread)


@pytest.mark.parametrize("root", ["", "Acme Slack export/"])
def test_S7_a_zip_is_read_as_the_folder_is(tmp_path: Path, root: str) -> None:
    """With a folder around all of it, too."""
    folder = read(export(tmp_path / "export"))
    file = read(zipped(tmp_path / "export.zip", root=root))
    assert [(one.id, one.title, shown(one)) for one in folder] == [(one.id, one.title, shown(one)) for one in file]


async def test_S7_a_longer_export_changes_what_changed(tmp_path: Path) -> None:
    """A message that got an answer moves from its day to its thread, and is found once."""
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        early = {name: value for name, value in EXPORT.items() if not name.endswith("04.json")}
        early |= {"growth/2024-11-03.json": [{**DAY[0], "thread_ts": ""}]}
        first = await documents.ingest([zipped(tmp_path / "one.zip", early)])
        again = await documents.ingest(
            [zipped(tmp_path / "two.zip", {**early, **EXPORT, "growth/2024-11-03.json": DAY[:1]})]
        )
        assert ((2, 0, 0), (1, 1, 1)) == (
            (first.added, first.changed, first.removed), (again.added, again.changed + again.unchanged, again.removed)
        )  # fmt: skip
        assert ["slack:C1/1730624400.000100", "slack:D1/2024-11-03"] == [one.id for one in await documents.list()]


async def test_S7_a_document_that_is_read_twice_at_once_is_as_it_was_read_last(tmp_path: Path) -> None:
    """Two exports of one channel, brought together."""
    later = {**EXPORT, "D1/2024-11-03.json": [{"user": "U1", "ts": "1730624400.000300", "text": "Never mind."}]}
    exports = [zipped(tmp_path / "one.zip"), zipped(tmp_path / "two.zip", later)]
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        report = await documents.ingest(exports)
        assert (3, 3) == (report.added, report.changed)
        assert ["Never mind."] == [one.text for one in await documents.passages("slack:D1/2024-11-03")]


async def test_S7_what_is_broken_in_an_export_is_named(tmp_path: Path) -> None:
    """File and place; the rest is read. Another zip is no export, another file no zip."""
    broken = {
        **EXPORT,
        "growth/2024-11-05.json": '[{"ts": "1",\n oops]',
        "growth/2024-11-06.json": [7, {"text": "x", "ts": "noon"}, {"text": "ok \ud800", "ts": "1.0"}],
        "growth/2024-11-07.json": {"a": 1},
    }
    zipped(tmp_path / "a.zip", broken)
    zipped(tmp_path / "b.zip", {"a.json": 1})
    (tmp_path / "c.zip").write_bytes(b"PK\x03\x04 cut")
    async with memory_engine.open(":memory:") as engine:
        report = await engine.tenant("acme").documents.ingest([tmp_path])
    assert [
        "a.zip: growth/2024-11-05.json line 2 column 2: not JSON: Expecting property name enclosed in double quotes",
        "a.zip: growth/2024-11-06.json message 1: it is not an object",
        "a.zip: growth/2024-11-06.json message 2: its time (`ts`) is 'noon'",
        "a.zip: growth/2024-11-07.json: it holds no list",
        "b.zip: it is not a Slack export: users.json and channels.json (or dms.json, …) are not in it",
        "c.zip: it is not a zip: File is not a zip file",
    ] == [str(error).removeprefix(f"{tmp_path}/") for error in report.failed]
    assert 4 == report.added


# PDF


def test_S7_a_pdf_is_its_pages(make: Files) -> None:
    """A section for each page with text; title, author and date as the file says."""
    (document,) = read(make("p.pdf", pdf("Prices rise.", "", "See page one.")))
    assert [("page 1", "", "Prices rise."), ("page 3", "", "See page one.")] == shown(document)
    assert ("Prices", "Ann", datetime(2024, 11, 3, 9, tzinfo=UTC)) == (document.title, document.author, document.date)


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "it is empty"), (b"%PDF-1.4 cut", "it cannot be read as PDF"), (pdf(""), "no page holds text")],
)
def test_S7_a_broken_pdf_is_named(make: Files, content: bytes, why: str) -> None:
    """Cut off, empty or scanned."""
    with pytest.raises(errors.UnreadableDocument, match=why):
        read(make("p.pdf", content))


def test_S7_without_its_package_a_pdf_says_what_to_install(make: Files) -> None:
    """As an error for one file; among others it is one of those that failed."""
    path = make("p.pdf", pdf("x"))
    code = f"""
import asyncio, memory_engine
from pathlib import Path
async def main():
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        report = await documents.ingest([{str(path.parent)!r}])
        print(*report.failed)
        try:
            await documents.add(Path({str(path)!r}))
        except memory_engine.errors.MissingExtra as error:
            print(error)
asyncio.run(main())
"""
    why = "reading PDF needs an optional package, extra `pdf`: in a clone, pip install '.[pdf]'"
    assert [f"{path}: {why}", why] == without("pypdf", code).splitlines()
