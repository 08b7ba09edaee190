"""What is read from text, Markdown, e-mail and transcripts; and what is said of broken files."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_engine import errors
from memory_engine.views.documents.readers.document import Loaded
from memory_engine.views.documents.readers.files import File, absolute, load
from memory_engine.views.documents.readers.html import html_text
from memory_engine.views.documents.readers.mail import written
from memory_engine.views.documents.readers.splitting import Splitting, markdown_document, split
from memory_engine.views.documents.readers.text import decoded
from tests.recall.document_files import Files, read, shown


@pytest.fixture
def make(tmp_path: Path) -> Files:
    """Write a file."""
    return Files(tmp_path)


# text


@pytest.mark.parametrize(
    "content",
    ["Grüße\nan alle".encode(encoding) for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252")]
    + ["Grüße\r\nan alle".encode(), "Grüße\ran alle".encode("latin-1")],
)
def test_S7_text_of_any_encoding_is_read(content: bytes) -> None:
    """By its mark, as UTF-8, or as Windows' Latin; line ends become one kind."""
    assert "Grüße\nan alle" == decoded(content)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "a.txt: it is empty"),
        (b" \n\t", "a.txt: it is empty"),
        (b"\xef\xbb\xbf\n", "a.txt: it holds no text"),
        (b"abc\0def", "a.txt: byte 3: it is binary: a NUL byte stands in it"),
        (b"\xff\xfea\0b", "a.txt: byte 4: it is not the utf-16 that its first bytes say"),
        (b"\xef\xbb\xbfab\xff", "a.txt: byte 5: it is not the utf-8 that its first bytes say"),
    ],
)
def test_S7_what_is_no_text_is_refused(make: Files, content: bytes, why: str) -> None:
    """With the place of the first byte that tells."""
    with pytest.raises(errors.UnreadableDocument) as caught:
        read(make("a.txt", content))
    assert str(caught.value).endswith(why)


# Markdown


def test_S7_markdown_is_cut_under_its_headings() -> None:
    """Both kinds of headings, nested; not in code, tables and lists; an empty one is itself the text."""
    text = """\
Before all.

# **Big** [plans](http://x) #

One.

## Q1 ##
```sh
# no heading
```
Two
---
Three.
### Deep
- item
---
| a |
|---|

# Other
## Empty
"""
    document = markdown_document(text, "x", "file")
    assert "Big plans" == document.title
    assert [
        ("", "", "Before all."),
        ("", "", "One."),
        ("Q1", "", "```sh\n# no heading\n```"),
        ("Two", "", "Three."),
        ("Two > Deep", "", "- item\n---\n| a |\n|---|"),
        ("Other", "", "Empty"),
    ] == shown(document)


def test_S7_front_matter_is_metadata() -> None:
    """Title, author and date are the document's; other plain lines are kept, none is text."""
    text = (
        '---\ntitle: "Plan: 2025"\nauthor: Ann\ndate: 2024-11-03\ntags: [a, b]\nlist:\n  - x\n---\n# Goals\n\nGrow.\n'
    )
    document = markdown_document(text, "x", "file")
    assert ("Plan: 2025", "Ann", datetime(2024, 11, 3, tzinfo=UTC)) == (document.title, document.author, document.date)
    assert ({"tags": "[a, b]"}, [("Goals", "", "Grow.")]) == (document.metadata, shown(document))
    odd = markdown_document("---\ndate: soon\n---\nx", "x", "file")
    assert (None, {"date": "soon"}, "file") == (odd.date, odd.metadata, odd.title)
    assert [("", "", "---\ntitle: x\n\nno end")] == shown(markdown_document("---\ntitle: x\n\nno end", "x", "f"))


@pytest.mark.parametrize(
    "text",
    [
        "# " + " " * 200_000 + "x",
        "# " + "[" * 200_000,
        "---\na:" + " " * 200_000 + "x\n---\ny",
        "\n \n" * 100_000 + "x",
    ],
)
def test_S7_hostile_markdown_takes_no_longer_than_other(text: str) -> None:
    """Runs of spaces and brackets, over which patterns could go again and again."""
    document = markdown_document(text, "x", "file")
    assert split(document.sections, Splitting()) or document.title


# e-mail

MAIL = """\
From: =?utf-8?q?J=C3=B6rg?= <joerg@acme.example>
To: Ann <ann@acme.example>, ben@acme.example
Subject: =?utf-8?b?UHJlaXNlIGbDvHIgMjAyNQ==?=
Date: Sun, 3 Nov 2024 10:00:00 +0100
Message-ID: <m3@acme.example>
References: <m1@acme.example>
 <m2@acme.example>
In-Reply-To: <m2@acme.example>
Content-Type: text/plain; charset=utf-8

Prices rise by 3 %.

On Sat, 2 Nov 2024, Ann wrote:
> What about prices?
> > Old.

Best,
--\x20
Jörg
Acme Ltd.
"""


def test_S7_a_mail_is_what_its_writer_wrote(make: Files) -> None:
    """Without quotes and signature; subject, author, date, thread and people are its description."""
    (document,) = read(make("a.eml", MAIL))
    assert [("", "", "Prices rise by 3 %.\n\nBest,")] == shown(document)
    assert ("Preise für 2025", "Jörg", "<m1@acme.example>") == (document.title, document.author, document.thread)
    assert datetime(2024, 11, 3, 9, tzinfo=UTC) == document.date
    assert {
        "from": "joerg@acme.example",
        "to": "Ann <ann@acme.example>, ben@acme.example",
        "message_id": "<m3@acme.example>",
    } == document.metadata


def test_S7_a_mail_of_html_is_read_as_text(make: Files) -> None:
    """Where there is no text part; styles, scripts and quoted blocks are left out, attachments named."""
    mail = (
        "Subject: Hi\r\nContent-Type: multipart/mixed; boundary=B\r\n\r\n--B\r\nContent-Type: text/html\r\n\r\n"
        "<html><head><title>t</title><style>p {}</style></head><p>One &amp; <b>two</b><br>three</p><script>x</script>"
        "<blockquote>old<p>older</blockquote>end</html>\r\n"
        '--B\r\nContent-Type: text/plain; name="n.txt"\r\nContent-Disposition: attachment; filename="n.txt"\r\n\r\n'
        "attached\r\n--B--\r\n"
    )
    (document,) = read(make("a.eml", mail))
    assert ["One & two\nthree\n\nend"] == [section.text for section in document.sections]
    assert ("Hi", "n.txt") == (document.title, document.metadata["attachments"])


def test_S7_a_mail_without_words_is_its_subject(make: Files) -> None:
    """Only a quote: the quote stays. Nothing at all: the subject is the text."""
    assert [("", "", "> Old.")] == shown(read(make("a.eml", "Subject: Re\n\n> Old.\n"))[0])
    assert [("", "", "Call me")] == shown(read(make("b.eml", "Subject: Call me\n\n"))[0])


@pytest.mark.parametrize(
    ("body", "own"),
    [
        ("Yes.\n-----Original Message-----\nFrom: x\nNo.", "Yes."),
        ("> A?\nYes.\n> B?\nNo.", "Yes.\n\nNo."),
        ("See below:\n> A?", "See below:"),
        ("Am 3.11.2024 um 10:00\nschrieb Ann:\n\n> A?\n\nJa.", "Ja."),
        ("a\n________________________\nfooter", "a"),
        ("a -- b\n---\nc", "a -- b\n---\nc"),
    ],
)
def test_S7_what_others_wrote_is_left_out(body: str, own: str) -> None:
    """Quotes with the line that introduces them, forwarded originals, signatures; answers in between stay in order."""
    assert own == written(body)


@pytest.mark.parametrize(
    "header",
    [
        "From: =?nope?q?=FF?= <a@b>",
        "From: a@b <",
        "Date: never",
        "Subject: \xff\xfe",
        "Content-Type: text/plain; charset=x",
    ],
)
def test_S7_a_faulty_header_does_not_lose_a_mail(make: Files, header: str) -> None:
    """What cannot be parsed is left as it is, or out."""
    (document,) = read(make("a.eml", f"Message-ID: <1@x>\n{header}\n\nHello.\n".encode("latin-1")))
    assert ["Hello."] == [section.text for section in document.sections]


def test_S7_what_is_no_mail_is_refused(make: Files) -> None:
    """A text without any header of an e-mail."""
    with pytest.raises(errors.UnreadableDocument, match="line 1: it has no header"):
        read(make("a.eml", "Hello there.\n\nNothing."))


def test_S7_a_mailbox_is_its_messages(make: Files) -> None:
    """Each by the file and its own id; copies once, another of the same id apart; `>From` comes back."""
    one = "From a@b Sun Nov  3\nMessage-ID: <1@x>\nSubject: One\n\nHello.\n>From me.\n"
    other = "From a@b Sun Nov  3\nMessage-ID: <1@x>\nSubject: Other\n\nBye.\n"
    bare = "From a@b Sun Nov  3\nSubject: Bare\n\nNo id.\n"
    path = make("all.mbox", "\n".join((one, one, other, bare)))
    first, second, third = read(path)
    assert (f"{absolute(path)}#<1@x>", "Hello.\nFrom me.") == (first.id, first.sections[0].text)
    assert second.id.startswith(f"{first.id}~")
    assert ["One", "Other", "Bare"] == [document.title for document in (first, second, third)]
    make("all.mbox", "\n".join((bare, one)))
    assert {first.id, third.id} == {document.id for document in read(path)}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("Subject: x\n\nHello", "line 1: it is not a mailbox"),
        ("", "it is empty"),
        ("From a\nSubject: x\n\nHi\n\nFrom b\n\nHello\n", "message 2: it has no header"),
    ],
)
def test_S7_a_broken_mailbox_says_where(make: Files, content: str, why: str) -> None:
    """A message that is none is named by its number."""
    with pytest.raises(errors.UnreadableDocument, match=why):
        read(make("a.mbox", content))


# transcripts


def test_S7_a_transcript_is_turns_of_speech(make: Files) -> None:
    """Cues of one speaker are joined, with the time of the first; notes, styles and tags are no words."""
    vtt = """\
WEBVTT - Call

NOTE not spoken

STYLE
::cue { color: red }

1
00:01.500 --> 00:03.000 align:start
<v Ann>Why did users <i>spike</i>

00:03.000 --> 00:05.000
<v.loud Ann>on Nov 3rd?</v>

00:00:06.000 --> 00:00:07.000
Ben Li: The campaign &amp; the news.

1:00:00.000 --> 1:00:01.000
"""
    (document,) = read(make("call.vtt", vtt))
    assert ("call", "vtt") == (document.title, document.format)
    assert [
        ("0:00:01", "Ann", "Why did users spike on Nov 3rd?"),
        ("0:00:06", "Ben Li", "The campaign & the news."),
    ] == shown(document)


def test_S7_subtitles_without_speakers_are_cut_between_cues(make: Files) -> None:
    """A long turn goes on in a new section at its own time, beginning with the last cue."""
    cues = (f"{n}\r\n00:00:{n:02},000 --> 00:00:{n + 1:02},000\r\nwords {n} {'x' * 80}\r\n" for n in range(1, 20))
    (document,) = read(make("film.srt", "\r\n".join(cues)))
    assert ["0:00:01", "0:00:07", "0:00:13"] == [section.about for section in document.sections]
    assert "srt" == document.format
    assert document.sections[1].text.startswith("words 7 ")
    assert max(len(section.text) for section in document.sections) <= 800


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("WEBVTT\n", "no cue stands in it"),
        ("1\n00:00:01 -> 2\nx\n", "no cue"),
        ("1\n0:1 --> 0:2\nx", "line 2: no times"),
    ],
)
def test_S7_a_broken_transcript_says_where(make: Files, content: str, why: str) -> None:
    """With the line of a time that is none."""
    with pytest.raises(errors.UnreadableDocument, match=why):
        read(make("a.srt", content))


@given(st.text("<>/abp&;! \n\"'=", max_size=60))
def test_S7_any_html_has_a_text(html: str) -> None:
    """Broken tags too."""
    assert html_text(html) == html_text(html).strip()


@settings(max_examples=100)
@given(st.sampled_from(["md", "txt", "eml", "mbox", "vtt", "srt", "pdf", "zip"]), st.binary(max_size=120))
def test_S7_any_bytes_are_a_document_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, kind: str, content: bytes
) -> None:
    """No file makes a reader raise anything but what names it."""
    path = tmp_path_factory.getbasetemp() / f"any.{kind}"
    path.write_bytes(content)
    for one in load(File(path, absolute(path))):
        assert isinstance(one, Loaded | errors.UnreadableDocument)
        assert not isinstance(one, errors.UnreadableDocument) or "reading it failed" not in one.why
