"""A reader for anything else: a mapping names the paths of a message's parts."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from attrs import evolve, field, frozen

from memory_engine.core.bounded import read_file
from memory_engine.core.moments import moment
from memory_engine.core.recordings import Record, RecordedConversation, RecordedFile
from memory_engine.errors import IngestError, InvalidArgument
from memory_engine.ingest.dialects import (
    chat_call,
    objects,
    parts_of,
    response,
    result,
    role_message,
    role_of,
    texts,
    under,
    usage_of,
)

KEYS = (
    "messages",
    "thread",
    "role",
    "text",
    "time",
    "name",
    "id",
    "parent",
    "thoughts",
    "calls",
    "call_id",
    "model",
    "usage",
)
_HINT = "write key=path words with commas between them, such as role=author.type,text=body, or name a JSON file of them"


@frozen
class Mapped:
    """Reads records by a mapping of `KEYS` to paths of keys (`author.type`).

    `messages` is the path of a list in each record, without which each is a message. `thread` is what its thread is
    named by. `roles` says which roles other words mean.
    """

    paths: Mapping[str, str]
    roles: Mapping[str, str] = field(factory=dict)
    name: str = "map"

    def sees(self, file: RecordedFile) -> bool:
        """Return True: a mapping is given for the files that it fits."""
        return bool(file.first)

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The conversations: one for each list of messages, or for each name of a thread, or one in all."""
        if "messages" in self.paths:
            yield from self._lists(file)
        elif "thread" in self.paths:
            yield from self._threads(file)
        else:
            yield RecordedConversation(self._records(file.records, file))

    def _lists(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        for record in file.records:
            if isinstance(record, IngestError):
                yield record
                continue
            messages = objects(record.value, *self.paths["messages"].split("."))
            label = str(self._at(record, "thread") or record.number)
            records = (evolve(record, value=one, number=n, is_line=False) for n, one in enumerate(messages, 1))
            yield RecordedConversation(self._records(records, file), label=label, line=record.line)

    def _threads(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        threads: dict[str, list[Record]] = {}
        for record in file.records:
            if isinstance(record, IngestError):
                yield record
            else:
                threads.setdefault(str(self._at(record, "thread") or ""), []).append(record)
        for label, records in threads.items():
            yield RecordedConversation(self._records(iter(records), file), label=label, line=records[0].line)

    def _records(self, records: Iterator[Record | IngestError], file: RecordedFile) -> Iterator[Record | IngestError]:
        for record in records:
            if isinstance(record, IngestError):
                yield record
                continue
            value = self._message(record)
            if value is None:
                file.left_out["record without a text"] += 1
                continue
            key, parent = self._at(record, "id"), self._at(record, "parent")
            named = evolve(record, key="" if key is None else str(key), parent="" if parent is None else str(parent))
            yield from parts_of(named, [value], at=moment(self._at(record, "time")))

    def _at(self, record: Record, key: str) -> object:
        return under(record.value, *self.paths[key].split(".")) if key in self.paths else None

    def _message(self, record: Record) -> object:
        told = self._at(record, "role")
        role = self.roles.get(str(told)) or role_of(told or "user")
        content = self._at(record, "text")
        text = texts(content) if not isinstance(content, int | float) else str(content)
        calls = [chat_call(one, n) for n, one in enumerate(objects({"calls": self._at(record, "calls")}, "calls"))]
        thoughts = texts(self._at(record, "thoughts"))
        call_id = self._at(record, "call_id")
        if not (text or calls or thoughts or (role == "tool" and call_id)):
            return None
        match role:
            case "tool":
                return result(call_id, text)
            case "assistant":
                around = {"model": self._at(record, "model"), "usage": usage_of(self._at(record, "usage"))}
                return response(role_message(role, text, calls, thoughts), around)
        name = self._at(record, "name")
        message = role_message(role, text)
        return {**message, "name": str(name)} if name and role == "user" else message


def mapping_of(text: str) -> Mapped:
    """The mapping that a text gives, or the JSON file of that name. Raises `InvalidArgument`."""
    path = Path(text)
    if "=" not in text or path.is_file():
        return _checked_mapping(_of_file(path, text), text)
    words = [word.partition("=") for word in text.split(",") if word.strip()]
    return _checked_mapping({key.strip(): value.strip() for key, _, value in words}, text)


def _of_file(path: Path, text: str) -> Mapping[str, object]:
    try:
        found = json.loads(read_file(path))
    except (OSError, ValueError) as error:
        _refuse(text, f"{error}; {_HINT}")
    if not isinstance(found, Mapping):
        _refuse(text, f"the file does not hold an object; {_HINT}")
    return found


def _checked_mapping(given: Mapping[str, object], text: str) -> Mapped:
    roles = given.get("roles", {})
    paths = {key: value for key, value in given.items() if key != "roles"}
    found = {key.removeprefix("role:"): value for key, value in paths.items() if key.startswith("role:")}
    paths = {key: value for key, value in paths.items() if not key.startswith("role:")}
    for key in paths:
        if key not in KEYS:
            _refuse(text, f"the key {key!r} is not one of {', '.join(KEYS)}; {_HINT}")
    if "text" not in paths and "calls" not in paths:
        _refuse(text, f"it does not say where the text is; {_HINT}")
    named = {**(roles if isinstance(roles, Mapping) else {}), **found}
    return Mapped({key: str(value) for key, value in paths.items()}, {key: str(one) for key, one in named.items()})


def _refuse(text: str, why: str) -> NoReturn:
    raise InvalidArgument("a mapping", text, why)
