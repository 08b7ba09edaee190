"""Conversations as text: transcripts (VTT, SRT), mail (mbox, eml), and aider's history in Markdown."""

import email
import mailbox
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from email.message import EmailMessage, Message
from email.policy import default
from email.utils import parseaddr
from pathlib import Path

from memory_engine.core.bounded import open_file, read_file
from memory_engine.core.clock import to_us
from memory_engine.core.events.messages import MessageOrigin
from memory_engine.core.lazy import regex
from memory_engine.core.moments import moment
from memory_engine.core.recordings import Record, RecordedConversation, RecordedFile
from memory_engine.errors import IngestError
from memory_engine.ingest.dialects import role_message

_CUE = regex(r"^\s*(?:\d+:)?\d+:\d\d[.,]\d+\s+-->")
_VOICE = regex(r"<v(?:\.[\w.]+)?\s+([^>]+)>")
_TAG = regex(r"<[^>]*>")
_SPEAKER = regex(r"^([^\W\d][\w .'-]{0,40}):\s+(?=\S)")
_AIDER = regex(r"^# aider chat started at (.+)$")


class Transcripts:
    """Reads transcripts: each speaker's cues, up to the next speaker's, are a message under their name."""

    name = "transcript"

    def sees(self, file: RecordedFile) -> bool:
        """Return True for a file named as one."""
        return file.path.suffix.lower() in (".vtt", ".srt")

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The one conversation."""
        yield from _one(file, _cues)


class Mail:
    """Reads mail: each message is its sender's, with its subject."""

    name = "mail"

    def sees(self, file: RecordedFile) -> bool:
        """Return True for a file named as one."""
        return file.path.suffix.lower() in (".mbox", ".eml")

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The one thread of all messages, in their order."""
        yield RecordedConversation(_mail(file))


class Aider:
    """Reads `.aider.chat.history.md`: what a person wrote is marked with `####`, what the tool said with `>`."""

    name = "aider"

    def sees(self, file: RecordedFile) -> bool:
        """Return True for Markdown that begins as aider's history does."""
        if file.path.suffix.lower() not in (".md", ".markdown") or not file.path.is_file():
            return False
        with open_file(file.path) as opened:
            return b"# aider chat started at" in opened.read(4096)

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The history, in which sessions follow each other."""
        yield from _one(file, _aider)


def _one(
    file: RecordedFile, read: Callable[[list[str]], Iterator[Record | IngestError]]
) -> Iterator[RecordedConversation | IngestError]:
    try:
        text = read_file(file.path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        yield IngestError(str(file.path), 1, f"cannot be read as UTF-8: {error}")
        return
    yield RecordedConversation(read(text.splitlines()))


def _cues(lines: list[str]) -> Iterator[Record | IngestError]:
    speaker, begun, number = "", 1, 0
    told: list[str] = []
    for place, name, text in _spoken(lines):
        if told and (name != speaker or not name):
            number += 1
            yield _spoken_by(speaker, told, begun, number)
            told = []
        if not told:
            speaker, begun = name, place
        told.append(text)
    if told:
        yield _spoken_by(speaker, told, begun, number + 1)


def _spoken_by(speaker: str, told: list[str], line: int, number: int) -> Record:
    message = role_message("user", " ".join(told))
    return Record({**message, "name": speaker} if speaker else message, line, number, format="openai.chat", origin="")


def _spoken(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """The place, the speaker and the text of each cue; one that goes on without a name is of the same speaker."""
    speaker = ""
    at = 0
    while at < len(lines):
        if not _CUE.match(lines[at]):
            at += 1
            continue
        begun = at = at + 1
        while at < len(lines) and lines[at].strip():
            at += 1
        text = " ".join(line.strip() for line in lines[begun:at])
        voice = _VOICE.search(text)
        named = _SPEAKER.match(text)
        text = _TAG.sub("", text).strip()
        if voice is not None:
            speaker = voice[1].strip()
        elif named is not None:
            speaker, text = named[1], text[named.end() :]
        if text:
            yield begun + 1, speaker, text


def _mails(path: Path) -> Iterator[Message]:
    if path.suffix.lower() == ".eml":
        with open_file(path) as opened:
            yield email.message_from_binary_file(opened, policy=default)
        return
    with open_file(path):  # a pipe, which would never end, is refused
        pass
    with closing(mailbox.mbox(path, create=False)) as box:
        for one in box:
            yield email.message_from_bytes(one.as_bytes(), policy=default)


def _mail(file: RecordedFile) -> Iterator[Record | IngestError]:
    try:
        yield from _of_mails(file)
    except (OSError, mailbox.Error) as error:
        yield IngestError(str(file.path), 1, f"cannot be read as mail: {error}")


def _of_mails(file: RecordedFile) -> Iterator[Record | IngestError]:
    for number, mail in enumerate(_mails(file.path), 1):
        assert isinstance(mail, EmailMessage)
        body = mail.get_body(("plain", "html"))
        text = str(body.get_content()).strip() if body is not None else ""
        name, address = parseaddr(str(mail.get("From", "")))
        if mail.get_content_maintype() == "multipart" and (attached := sum(1 for _ in mail.iter_attachments())):
            file.left_out["attachment"] += attached
        subject = str(mail.get("Subject", ""))
        message = role_message("user", "\n\n".join(filter(None, (f"Subject: {subject}" if subject else "", text))))
        key = str(mail.get("Message-ID", ""))
        yield Record(
            {**message, "name": name or address},
            1,
            number,
            format="openai.chat",
            at=_mail_date(mail),
            origin="",
            key=key,
            parent=str(mail.get("In-Reply-To", "")),
        )


def _mail_date(mail: EmailMessage) -> datetime | None:
    found = getattr(mail.get("Date"), "datetime", None)
    return moment(to_us(found) / 1_000_000) if isinstance(found, datetime) and found.tzinfo is not None else None


def _aider(lines: list[str]) -> Iterator[Record | IngestError]:
    told: list[str] = []
    kind, begun, number = "", 1, 0
    at: datetime | None = None
    for place, line in enumerate((*lines, "# aider chat started at -"), 1):
        started = _AIDER.match(line)
        now = "started" if started else _of_aider(line)
        if line.strip() and now != kind:
            text = "\n".join(told).strip()
            if text and kind != "started":
                number += 1
                origin: MessageOrigin = "client" if kind == "tool" else ""
                message = role_message("assistant" if kind == "assistant" else "user", text)
                yield Record(message, begun, number, format="openai.chat", at=at, origin=origin)
            kind, told, begun = now, [], place
        if started:
            at = moment(started[1])
        told.append(line.removeprefix("#### ").removeprefix("> "))


def _of_aider(line: str) -> str:
    if line.startswith("#### "):
        return "user"
    return "tool" if line.startswith("> ") or re.fullmatch(r">\s*", line) else "assistant"
