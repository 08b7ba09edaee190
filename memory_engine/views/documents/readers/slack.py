"""A Slack export, a folder or a zip of one: threads with their parent, and days of messages outside of threads."""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from attrs import frozen

from memory_engine.core.clock import to_us
from memory_engine.core.lazy import regex
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits, json_values
from memory_engine.views.documents.readers.document import DocumentSection, Loaded, Unreadable, check_limit
from memory_engine.views.documents.readers.text import from_seconds, unescaped

_DAY = regex(r"(?P<folder>[^/]+)/(?P<day>\d{4}-\d{2}-\d{2})\.json")
_INDEXES = ("channels.json", "groups.json", "dms.json", "mpims.json")
_NOISE = frozenset(
    "channel_join channel_leave channel_topic channel_purpose channel_name channel_archive channel_unarchive "
    "group_join group_leave group_topic group_purpose group_name bot_add bot_remove pinned_item reminder_add "
    "tombstone".split()
)
_MARKUP = regex(r"<([^<>]+)>")
TURN_CHARS_MAX = 700
TURN_GAP_S = 300
"""Messages of one person within this time of each other are one section, up to a number of characters."""
TITLE_CHARS_MAX = 80
FAULTS_OF_FILE_MAX = 500
"""A file with more broken messages than this is given up."""


class Export(Protocol):
    """The files of an export by their names from its root on, with `/` between folder and file."""

    def names(self) -> Collection[str]:
        """All names, in their order; asking whether one is among them takes no walk over the others."""
        ...

    def read(self, name: str) -> bytes:
        """A file's content. Raises `Unreadable`."""
        ...


@frozen
class _Message:
    ts: str
    seconds: float
    speaker: str
    text: str
    thread: str


@frozen
class _Channel:
    id: str
    label: str


def read_slack(export: Export, path: str, limits: ReadingLimits = DEFAULT_LIMITS) -> Iterator[Loaded | Unreadable]:
    """Threads and days of every channel, in order; a broken file as its error.

    A day of which all messages went into threads comes without sections: the messages of an earlier export are to go.
    """
    faults: list[Unreadable] = []
    users = _users(_json_list(export, "users.json", faults, limits))
    channels = _channels(export, users, faults, limits)
    yield from faults
    days: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name in export.names():
        found = _DAY.fullmatch(name)
        if found:
            days[found["folder"]].append((found["day"], name))
    for folder, files in sorted(days.items()):
        channel = channels.get(folder) or _Channel(folder, f"#{folder}")
        by_day: dict[str, list[_Message]] = {}
        count = 0
        for day, name in sorted(files):
            faults = []
            messages = _slack_messages(_json_list(export, name, faults, limits), users, name, faults)
            count += len(messages)
            if count > limits.chat_messages:
                break
            by_day[day] = messages
            yield from faults
        if count > limits.chat_messages:
            why = f"the channel has over {limits.chat_messages:,} messages"
            yield Unreadable(why, folder, "chat_messages")
        else:
            yield from _documents(channel, by_day, path)


def _documents(channel: _Channel, by_day: Mapping[str, Sequence[_Message]], path: str) -> Iterator[Loaded]:
    threads: dict[str, list[_Message]] = defaultdict(list)
    for messages in by_day.values():
        for message in messages:
            threads[message.thread or message.ts].append(message)
    grouped = {ts for ts, messages in threads.items() if len(messages) > 1 or messages[0].ts != ts}
    for ts in sorted(grouped):
        messages = sorted(threads[ts], key=lambda message: message.ts)
        title = f"{channel.label}: {_excerpt(messages[0].text)}"
        yield _channel_document(channel, ts, title, messages, path)
    for day, messages in by_day.items():
        alone = sorted((one for one in messages if (one.thread or one.ts) not in grouped), key=lambda one: one.ts)
        yield _channel_document(channel, day, f"{channel.label}, {day}", alone, path)


def _channel_document(channel: _Channel, part: str, title: str, messages: Sequence[_Message], path: str) -> Loaded:
    is_thread = "." in part
    return Loaded(
        id=f"slack:{channel.id}/{part}",
        title=title,
        format="slack",
        sections=tuple(_sections(messages)),
        source=path,
        author=messages[0].speaker if messages and is_thread else "",
        date=from_seconds(messages[0].seconds) if messages else None,
        channel=channel.label,
        thread=part if is_thread else "",
        may_be_empty=True,
    )


def _sections(messages: Sequence[_Message]) -> Iterator[DocumentSection]:
    """Messages of one person that follow each other closely are one section."""
    turn: list[_Message] = []
    for message in messages:
        if turn and (
            turn[-1].speaker != message.speaker
            or message.seconds - turn[-1].seconds > TURN_GAP_S
            or sum(len(one.text) + 1 for one in turn) + len(message.text) > TURN_CHARS_MAX
        ):
            yield _section(turn)
            turn = []
        turn.append(message)
    if turn:
        yield _section(turn)


def _section(turn: Sequence[_Message]) -> DocumentSection:
    moment = from_seconds(turn[0].seconds)
    return DocumentSection(
        text="\n".join(message.text for message in turn),
        speaker=turn[0].speaker,
        at_us=None if moment is None else to_us(moment),
    )


def _json_list(export: Export, name: str, faults: list[Unreadable], limits: ReadingLimits) -> list[object]:
    """The list that a file holds; empty for a missing file; a broken one is noted."""
    if name not in export.names():
        return []
    try:
        content = export.read(name)
        check_limit(json_values(content), limits, "json_values", "values or more")
        found: object = json.loads(content)
    except Unreadable as error:
        faults.append(Unreadable(error.why, name, error.limit))
    except json.JSONDecodeError as error:
        faults.append(Unreadable(f"not JSON: {error.msg}", f"{name} line {error.lineno} column {error.colno}"))
    except (ValueError, RecursionError) as error:
        faults.append(Unreadable(f"not JSON: {error}", name))
    else:
        if isinstance(found, list):
            return found
        faults.append(Unreadable("it holds no list", name))
    return []


def _users(listed: Sequence[object]) -> dict[str, str]:
    """The names of people by their ids."""
    return {_text_field(user, "id"): _user_name(user) for user in listed if isinstance(user, dict)}


def _user_name(user: Mapping[str, object]) -> str:
    profile = user.get("profile")
    inner: Mapping[str, object] = profile if isinstance(profile, dict) else {}
    choices = (
        _text_field(inner, "real_name"),
        _text_field(user, "real_name"),
        _text_field(inner, "display_name"),
        _text_field(user, "name"),
    )
    return next(filter(None, choices), _text_field(user, "id"))


def _channels(
    export: Export, users: Mapping[str, str], faults: list[Unreadable], limits: ReadingLimits
) -> dict[str, _Channel]:
    """Channels by their folders: a name, or for direct messages an id."""
    found: dict[str, _Channel] = {}
    for index in _INDEXES:
        for one in _json_list(export, index, faults, limits):
            if not isinstance(one, dict):
                continue
            name, own = _text_field(one, "name"), _text_field(one, "id")
            members = one.get("members")
            people = [users.get(str(member), str(member)) for member in members] if isinstance(members, list) else []
            label = f"#{name}" if name and index in _INDEXES[:2] else ", ".join(people) or name or own
            found[name or own] = _Channel(own or name, label)
    return found


def _slack_messages(
    listed: Sequence[object], users: Mapping[str, str], name: str, faults: list[Unreadable]
) -> list[_Message]:
    messages = []
    for n, one in enumerate(listed, 1):
        if len(faults) > FAULTS_OF_FILE_MAX:
            faults[-1] = Unreadable(f"over {FAULTS_OF_FILE_MAX} of its messages cannot be read: the rest is left", name)
            break
        if not isinstance(one, dict):
            faults.append(Unreadable("it is not an object", f"{name} message {n}"))
            continue
        if _text_field(one, "subtype") in _NOISE or _text_field(one, "type") not in ("", "message"):
            continue
        text = _message_text(one, users)
        ts = _text_field(one, "ts")
        try:
            seconds = float(ts)
        except ValueError:
            faults.append(Unreadable(f"its time (`ts`) is {ts[:TITLE_CHARS_MAX]!r}", f"{name} message {n}"))
            continue
        if text:
            messages.append(_Message(ts, seconds, _speaker(one, users), text, _text_field(one, "thread_ts")))
    return messages


def _speaker(message: Mapping[str, object], users: Mapping[str, str]) -> str:
    known = users.get(_text_field(message, "user"))
    profile = message.get("user_profile")
    said = _user_name(profile) if isinstance(profile, dict) else ""
    return (
        known
        or said
        or _text_field(message, "username")
        or _text_field(message, "user")
        or _text_field(message, "bot_id")
    )


def _message_text(message: Mapping[str, object], users: Mapping[str, str]) -> str:
    """A message's text; without one, that of its attachments."""
    text = _expand_markup(_text_field(message, "text"), users)
    if text:
        return text
    attached: list[str] = []
    for key, field in (("attachments", "fallback"), ("files", "title")):
        several = message.get(key)
        for one in several if isinstance(several, list) else ():
            said = _text_field(one, "text") or _text_field(one, field) if isinstance(one, dict) else ""
            attached.append(_expand_markup(said, users))
    return "\n".join(filter(None, attached))


def _expand_markup(text: str, users: Mapping[str, str]) -> str:
    """Slack's markup as a reader sees it: names for ids, labels with their addresses."""

    def shown(found: re.Match[str]) -> str:
        target, _, label = found[1].partition("|")
        if target.startswith("@"):
            return f"@{users.get(target[1:]) or label or target[1:]}"
        if target.startswith("#"):
            return f"#{label or target[1:]}"
        if target.startswith("!"):
            return label or f"@{target[1:].partition('^')[0]}"
        return f"{label} ({target})" if label and label not in target else target

    return unescaped(_MARKUP.sub(shown, text)).strip()


def _text_field(of: Mapping[str, object], key: str) -> str:
    """A text under a key, empty without one; halves of characters become question marks."""
    value = of.get(key)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARS_MAX else line[: TITLE_CHARS_MAX - 1] + "…"
