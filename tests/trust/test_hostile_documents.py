"""Files made to hurt: each is read in time that grows with its length, within limits, and stops no other."""

import codecs
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from attrs import fields

import memory_engine
from memory_engine import errors
from memory_engine.core.limits import ReadingLimits
from memory_engine.views.documents.readers.document import DocumentSection, Loaded, Unreadable
from memory_engine.views.documents.readers.docx import read_docx
from memory_engine.views.documents.readers.files import File, absolute, load
from memory_engine.views.documents.readers.html import html_text, read_html
from memory_engine.views.documents.readers.mail import read_mail, written
from memory_engine.views.documents.readers.mime import as_text, decoded_header
from memory_engine.views.documents.readers.pdf import read_pdf
from memory_engine.views.documents.readers.splitting import Splitting, markdown_document, split, split_simply
from memory_engine.views.documents.readers.tables import read_csv
from memory_engine.views.documents.readers.text import read_transcript
from memory_engine.views.documents.readers.values import read_json, read_json_lines
from tests.recall.document_files import Files, docx, paragraph, pdf, word_file, word_row
from tests.trust.hostile_files import is_linear, mail, mailbox, many_parts, nested_parts, slack_zip, with_long_list

SMALL = ReadingLimits(
    file_bytes=4_000, mail_parts=20, mail_depth=5, header_chars=500, json_values=200, markup_tags=200, table_cells=200
)


@pytest.fixture
def make(tmp_path: Path) -> Files:
    """Write a file."""
    return Files(tmp_path)


def loaded(path: Path, limits: ReadingLimits = SMALL) -> tuple[list[Loaded], list[errors.UnreadableDocument]]:
    """The documents of a file, and its faults."""
    everything = list(load(File(path, absolute(path)), limits))
    faults = [one for one in everything if isinstance(one, errors.UnreadableDocument)]
    return [one for one in everything if isinstance(one, Loaded)], faults


# time

HTML = (
    "<|<a |<!--|<![CDATA[|<!|<?|<a b=\"|<a b='|</a |&|&#|&amp|<template>|</template>|<a|<script>|</|<a =|<p>|>|\n|<b c"
)
HTML += "|<blockquote>|<script></script|<!-->|<a \"b\" 'c'|<template></title>"


@pytest.mark.parametrize("piece", HTML.split("|"))
def test_html_of_any_broken_tag_takes_linear_time(piece: str) -> None:
    """58 KB of `<a ` took 21 seconds."""
    assert is_linear(html_text, lambda size: piece * (size // len(piece)), 4_000)


@pytest.mark.parametrize("piece", ["a", "漢", "a.", "*", "[", "_a", "<a", "`", "a\n", "漢 ", "。", "\u0301", "a\n \n"])
@pytest.mark.parametrize("markdown", [False, True])
def test_unbroken_text_is_cut_in_linear_time(piece: str, markdown: bool) -> None:
    """4 MB of one word took 36 seconds: the splitter weighs the whole rest of a text for each passage."""

    def cut(text: str) -> None:
        section = DocumentSection(text=text, is_markdown=markdown)
        assert "".join(text.split())[:1] == split([section], Splitting())[0].text[:1]

    assert is_linear(cut, lambda size: piece * (size // len(piece)), 40_000)  # shorter texts are cut otherwise


@pytest.mark.parametrize(
    "text", ["漢" * 70_000, "word " * 14_000, "A sentence of it. " * 4_000, "漢字的文章。" * 12_000, "x" * 70_000]
)
def test_a_long_stretch_loses_no_text(text: str) -> None:
    """Passages without an overlap are the text."""
    passages = split([DocumentSection(text=text)], Splitting(chars=800, overlap=0))
    assert "".join(text.split()) == "".join("".join(one.text for one in passages).split())
    assert 800 >= max(len(one.text) for one in passages)


PAGES = (
    "<p>a|<h1>a|<li>a|<ul><li>a|<table><tr><td>a|<td>a|<tr><th>a</table>|<div hidden>a|<main>a|</main>|"
    "<article>a</main>|<title>a|<meta name=author |<a role=|<td colspan=99>a|<br>|<pre>a\n|<nav>a|</div>|<svg/>|"
    "<h1>a<h2>b|<img alt=a"
)
READERS: dict[str, tuple[Callable[[str], object], str]] = {
    "simple splitter": (lambda text: split_simply(text, Splitting()), "a|a |. |\n| |\n \n|.\n|a\n\n"),
    "markdown": (
        lambda text: markdown_document(text, "x", "x"),
        "# |#|[|![|[](|```\n|~~~\n|=\n|-|--- |---\n|_|*|a\n=\n|# a\n|> |1. | |\n|\t|`",
    ),
    "front matter": (lambda text: markdown_document(f"---\n{text}", "x", "x"), "a:|a: b\n|---|--- |...|:|\n| "),
    "transcript": (
        lambda text: _tried(read_transcript, text.encode()),
        "00:00:01.000 --> 00:00:02.000\na\n\n|1|1:|:| |-->|\n|0|WEBVTT\n",
    ),
    "cue": (
        lambda text: read_transcript(f"00:00:01.000 --> 00:00:02.000\nx {text}".encode(), "x.vtt"),
        "<v |<v|<v a>|<|<a|{\\|>> |A: |a|<v.|<v.a|&#|&#1|{|\\| ",
    ),
    "quoted mail": (written, "> a\n|a\n>\n|--|-- |_|On 1 x wrote:\n> |:\n>\n|----|-- Original|\n| "),
    "header": (
        decoded_header,
        "=?|=?a?|=?utf-8?q?|=?utf-8?q?a?= |=?utf-8?b?YQ==?=|=?a?b?=|?=|=| |a|=?x*|=?utf-8?q?=ff?= ",
    ),
    "page": (lambda text: _tried(read_html, text.encode()), PAGES),
    "rows": (lambda text: _tried(read_csv, text.encode()), 'a,|,|"|a;b\n|\n|"a"b|a,"b\n|\t||'),
    "values": (lambda text: _tried(read_json, text.encode()), '[|{"a":|"a|1|[1,'),
    "lines of values": (lambda text: _tried(read_json_lines, text.encode()), '1\n|[]\n|{"a":[{"b":1}]}\n|"a b"\n'),
    "word": (
        lambda text: _tried(read_docx, docx(text)),
        f"<w:tbl>|<w:p/>|{paragraph('a')}|{word_row(paragraph('a'))}|<w:tc><w:tbl>|<w:del>|<w:t>a</w:t>|<w:p>",
    ),
    "punycode": (lambda text: as_text(text.encode(), "punycode"), "a|-|a-b|9"),
}


def _tried(read: Callable[[bytes, str], object], content: bytes) -> None:
    with suppress(Unreadable):
        read(content, "x")


@pytest.mark.parametrize(
    ("reader", "piece"), [(name, piece) for name, (_, some) in READERS.items() for piece in some.split("|") if piece]
)
def test_every_reader_takes_linear_time(reader: str, piece: str) -> None:
    """Of any repeated mark that means something to it."""
    assert is_linear(READERS[reader][0], lambda size: piece * (size // len(piece)), 4_000)


@pytest.mark.parametrize(
    "made",
    [
        lambda size: mail("Subject: " + "=?utf-8?q?a?= " * size),
        lambda size: mail("References: " + "<a@b> " * size),
        lambda size: mail("To: " + "Ann <a@b.c>, " * size),
        lambda size: mail("From: " + "(" * size),
        lambda size: mail("X-Any: " + "a" * size, *["X-Other: b"] * size),
        lambda size: mail('Content-Type: text/plain; a="' + '";' * (size // 100)),
        lambda size: mail(body="a\n>\n" * size),
        lambda size: nested_parts(size // 50) + b"--b\n" * size,
        lambda size: many_parts(size // 10),
        lambda size: b"From: a@b.c\n" + b"Content-Type: message/rfc822\n\n" * (size // 50),
        lambda size: mail("Content-Transfer-Encoding: x-uuencode", body="begin 644 x\n" * size),
        lambda size: b"From: a@b.c\nContent-Type: multipart/x; boundary=b\n\n" + b"--b--\n--c\n" * size,
    ],
)
def test_a_mail_takes_linear_time(made: Callable[[int], bytes]) -> None:
    """The standard library's parser squares the length of a header and the depth of parts."""
    limits = ReadingLimits(header_chars=10**9, mail_parts=10**9, mail_depth=10**9)
    assert is_linear(lambda content: read_mail(content, "x", limits), made, 500)


# limits


def test_a_limit_is_a_whole_number() -> None:
    """From 1 on; the error says which."""
    for one in fields(ReadingLimits):
        for wrong in (0, -1, 1.5, True, "x"):
            with pytest.raises(errors.InvalidDocument, match=one.name):
                cast(Callable[..., ReadingLimits], ReadingLimits)(**{one.name: wrong})


@pytest.mark.parametrize(
    ("name", "content", "limit"),
    [
        ("a.md", b"x" * 4_001, "file_bytes"),
        ("a.eml", mail("Subject: " + "x" * 501), "header_chars"),
        ("a.eml", mail('Content-Type: text/plain; name="' + "x" * 501 + '"'), "header_chars"),
        ("a.eml", nested_parts(6), "mail_depth"),
        ("a.eml", b"From: a@b\n" + b"Content-Type: message/rfc822\n\n" * 6, "mail_depth"),
        ("a.eml", many_parts(21), "mail_parts"),
        ("a.mbox", mailbox(mail(body="x" * 4_001)), "file_bytes"),
        ("a.json", b"[" + b"1," * 250 + b"1]", "json_values"),
        ("a.jsonl", b'{"a": 1, "b": 2}\n' * 100, "json_values"),
        ("a.html", b"<p>" * 201, "markup_tags"),
        ("a.docx", docx("<w:p/>" * 201), "markup_tags"),
        ("a.docx", docx(" " * 4_001), "file_bytes"),
        ("a.csv", b"a,b\n" + b"1,2\n" * 101, "table_cells"),
        ("a.csv", ("name" * 30 + "," + "other" * 24 + "\n" + "a,b\n" * 50).encode(), "file_bytes"),
        ("a.zip", slack_zip({"growth/2024-11-03.json": b"[" + b"1," * 250 + b"1]"}), "json_values"),
        ("a.zip", slack_zip({"growth/2024-11-03.json": b"[" + b" " * 4_000 + b"]"}), "file_bytes"),
    ],
)
def test_what_passes_a_limit_is_refused_by_its_name(make: Files, name: str, content: bytes, limit: str) -> None:
    """The error says which, how much there is, and how to raise it."""
    _, faults = loaded(make(name, content))
    assert [limit] == [fault.limit for fault in faults]
    assert f"raise it: limits=ReadingLimits({limit}=…)" in str(faults[0])


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (ReadingLimits(archive_files=3), "archive_files"),
        (ReadingLimits(archive_bytes=1_000), "archive_bytes"),
        (ReadingLimits(chat_messages=10), "chat_messages"),
    ],
)
def test_an_archive_has_limits(make: Files, limits: ReadingLimits, limit: str) -> None:
    """Of its files, of all its bytes when unpacked, of the messages of a channel."""
    days = {
        f"growth/2024-11-{day:02}.json": b'[{"ts": "%d.1", "text": "hello", "user": "U1"}]' % day
        for day in range(1, 31)
    }
    documents, faults = loaded(make("a.zip", slack_zip(days)), limits)
    assert ([], [limit]) == (documents, [fault.limit for fault in faults])
    documents, faults = loaded(make("b.zip", slack_zip(days)), ReadingLimits())
    assert (30, []) == (len(documents), faults)


def test_a_zip_that_unpacks_to_a_thousand_times_its_size_is_refused(make: Files) -> None:
    """Before a byte is unpacked: over 64 MiB an archive may be 200 times larger than packed."""
    content = slack_zip({f"growth/2024-11-{day:02}.json": b"[%s]" % (b" " * 7_000_000) for day in range(1, 12)})
    documents, faults = loaded(make("a.zip", content), ReadingLimits())
    assert ([], ["archive_ratio"]) == (documents, [fault.limit for fault in faults])


def test_a_zip_is_not_asked_for_a_list_that_is_too_long(make: Files) -> None:
    """An object of each entry would be there before anybody counts them."""
    _, faults = loaded(make("a.zip", with_long_list(slack_zip({}), 10_000)), ReadingLimits(archive_files=10))
    assert ["archive_files"] == [fault.limit for fault in faults]


def test_a_zip_that_says_how_much_memory_to_take_is_refused(make: Files) -> None:
    """LZMA's head names the size of its dictionary, up to four gigabytes."""
    documents, faults = loaded(make("a.zip", slack_zip({}, zipfile.ZIP_LZMA)), ReadingLimits())
    assert [] == documents
    assert all("packed by the method 14" in fault.why for fault in faults)


def test_a_small_zip_takes_little_memory(make: Files) -> None:
    """12 KB of packed numbers made an error object of each: three gigabytes."""
    path = make("a.zip", slack_zip({"growth/2024-11-03.json": b"[" + b"1," * 300_000 + b"1]"}))
    _, faults = loaded(path, ReadingLimits())
    assert 1_002 > len(faults)
    assert "over 500 of its messages cannot be read" in faults[-1].why


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: docx("<w:p/>" + " " * 60_000_000), "bytes when unpacked; the limit is 52,428,800"),
        (
            lambda: docx("<w:p/>", **dict.fromkeys(("styles", "footnotes", "core"), " " * 30_000_000)),
            "bytes for each packed one; the limit is 200",
        ),
        (lambda: b"\xd0\xcf\x11\xe0" + b"\0" * 600, "locked by a password: save it as .docx, unlocked"),
        (lambda: slack_zip({}), "it is not a Word file: word/document.xml is not in it"),
        (lambda: docx("<w:p>"), "word/document.xml: it is not XML: mismatched tag"),
        (
            lambda: word_file('<!DOCTYPE d [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><d>&b;</d>'),
            "word/document.xml: it declares a document type",
        ),
    ],
)
def test_a_word_file_made_to_hurt_is_refused(make: Files, made: Callable[[], bytes], why: str) -> None:
    """One that unpacks to a thousand times its size, one whose entities multiply, one that is something else."""
    documents, faults = loaded(make("a.docx", made()), ReadingLimits())
    assert [] == documents
    assert why in str(faults[0])


def test_deep_values_are_refused(make: Files) -> None:
    """A hundred thousand brackets overflow no stack; nine hundred, each with a long name, make no long path."""
    _, faults = loaded(make("a.json", b"[" * 100_000), ReadingLimits())
    assert "its values are nested too deep" in str(faults[0])
    documents, _ = loaded(make("b.json", b'{"%s": ' % (b"k" * 500) * 900 + b"1" + b"}" * 900), ReadingLimits())
    assert 700 > len(documents[0].sections[0].text)


def test_a_file_names_so_many_faults(make: Files) -> None:
    """A gigabyte of broken messages is a thousand faults, and a number."""
    documents, faults = loaded(make("a.mbox", mailbox(*(b"%d\n" % n for n in range(1_500)), mail("Subject: good"))))
    assert (["good"], 1_001) == ([one.title for one in documents], len(faults))
    assert "500 more of its parts cannot be read" == faults[-1].why


async def test_a_document_has_so_many_passages(tmp_path: Path) -> None:
    """One of more is refused, and the log stays as it was."""
    (tmp_path / "a.txt").write_text("one word after another. " * 1_000)
    (tmp_path / "b.txt").write_text("short")
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        report = await documents.ingest(tmp_path, limits=ReadingLimits(passages=10))
        assert ["b"] == [one.title for one in await documents.list()]
    assert "raise the limit: limits=ReadingLimits(passages=…)" in str(report.failed[0])


# one bad thing stops no other


ODD = {
    "an encoding that always fails": mail("Subject: odd", "Content-Type: text/plain; charset=undefined"),
    "an encoding that is none": mail("Subject: odd", "Content-Type: text/plain; charset=\x01\x02"),
    "an encoding without end": mail("Subject: odd", f"Content-Type: text/plain; charset={'a' * 400}"),
    "an encoding that hangs": mail(
        "Subject: odd", "Content-Type: text/plain; charset=punycode", body="a" * 3_000 + "-a"
    ),
    "1,200 parts in one another": nested_parts(1_200),
    "20,000 encoded words": mail("Subject: " + "=?utf-8?q?a?= " * 20_000),
    "comments in comments": mail("Subject: odd", "From: " + "(" * 3_000),
    "broken parameters": mail("Subject: odd", "Content-Disposition: attachment; filename*0*=x'y'%ff; filename*=''"),
    "a date of many digits": mail("Subject: odd", "Date: 1" + "0" * 480),
    "a subject of 312 KB": mail("Subject: " + "a =?utf-8?q?a?= " * 20_000),
    "broken base64": mail("Subject: =?utf-8?b?a?=", "Content-Transfer-Encoding: base64", body="a"),
    "nothing": b"",
    "a boundary of blanks": mail("Subject: odd", 'Content-Type: multipart/mixed; boundary="  "', body="--\n--  \n"),
    "one boundary for all": nested_parts(4, "").replace(b"0", b"").replace(b"1", b""),
}


@pytest.mark.parametrize("what", ODD)
def test_an_odd_mail_ends_no_mailbox(make: Files, what: str) -> None:
    """The mails before and after it are read, and it is read or named."""
    documents, faults = loaded(make("a.mbox", mailbox(mail("Subject: first"), ODD[what], mail("Subject: last"))))
    titles = [one.title for one in documents]
    assert ("first", "last", 3) == (titles[0], titles[-1], len(titles) + len(faults))
    assert all("message 2" == fault.place for fault in faults)


def test_every_encoding_of_python_is_read_or_passed_over() -> None:
    """Whatever a mail says that its text is written in."""
    for name in (*sorted(set(_encodings())), "undefined", "idna", "rot13", "bz2", "", "\0", "a" * 100, "é"):
        assert isinstance(as_text("grüße -9999-".encode(), name), str)
    assert ("grüße", "grüße") == (
        as_text("grüße".encode(), "punycode"),
        as_text("grüße".encode("latin-1"), "iso-8859-1"),
    )


def _encodings() -> list[str]:
    import encodings.aliases

    return list(encodings.aliases.aliases.values())


async def test_hostile_files_stop_no_others(tmp_path: Path) -> None:
    """A folder of them, with a good file before and after: each is named in the report, and the rest is there."""
    (tmp_path / "a.md").write_text("# First\n\nGood.")
    (tmp_path / "z.md").write_text("# Last\n\nGood.")
    hostile = {
        "b.eml": nested_parts(1_200),
        "c.zip": with_long_list(slack_zip({}), 60_000_000),
        "d.vtt": b"9" * 5_000 + b":00:00.000 --> 00:00:01.000\nx",
        "e.pdf": b"%PDF-1.4\n" + b"<<" * 5_000,
        "f.txt": codecs.BOM_UTF16_LE + b"\x00\xd8",
        "g.mbox": b"no mailbox",
        "h.html": b"<" * 2_000_001,
        "i.csv": b'a,b\n1,"' + b"x\n" * 100_000,
        "j.json": b"[" * 100_000,
        "k.jsonl": b'{"a": 1}\n{"a": ' + b"[" * 100_000,
        "l.docx": docx("<w:body>", styles="<w:style>"),
        "m.docx": b"PK\x03\x04",
    }
    for name, content in hostile.items():
        (tmp_path / name).write_bytes(content)
    async with memory_engine.open(":memory:") as engine:
        documents = engine.tenant("acme").documents
        report = await documents.ingest(tmp_path)
        assert ["First", "Last"] == [one.title for one in await documents.list()]
    named = [Path(one.path).name for one in report.failed] + [Path(one).name for one in report.skipped]
    assert sorted(hostile) == sorted(named)


# PDF


@pytest.mark.parametrize(
    ("limits", "count", "limit"),
    [
        (ReadingLimits(pdf_seconds=1), 300_000, "pdf_seconds"),
        (ReadingLimits(pdf_bytes=80_000_000), 300_000, "pdf_bytes"),
        (ReadingLimits(file_bytes=100), 200, "file_bytes"),
    ],
)
def test_a_pdf_is_read_in_a_process_that_can_be_ended(limits: ReadingLimits, count: int, limit: str) -> None:
    """One that takes too long, too much memory or holds too much text costs that process, and is named."""
    with pytest.raises(Unreadable) as caught:
        read_pdf(pdf("x) Tj (" * count), "x.pdf", limits)
    assert limit == caught.value.limit


def test_a_broken_pdf_is_named() -> None:
    """With what its reader says."""
    with pytest.raises(Exception, match="it cannot be read as PDF"):
        read_pdf(b"%PDF-1.4 broken", "x.pdf")
