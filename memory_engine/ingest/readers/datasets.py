"""Conversations as data sets and benchmarks have them: ShareGPT, ToolBench, preference rows, tau2, BFCL, Assistants."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from attrs import evolve

from memory_engine.core.events.messages import MessageOrigin
from memory_engine.core.moments import moment, moment_of
from memory_engine.core.recordings import Record, RecordedConversation, RecordedFile
from memory_engine.errors import IngestError
from memory_engine.formats.values import compact
from memory_engine.ingest.dialects import (
    Json,
    chat_call,
    chat_message,
    objects,
    parts_of,
    response,
    result,
    role_message,
    role_of,
    text_under,
    texts,
    usage_of,
)

Said = tuple[Json, MessageOrigin | None]


class _RowsOfConversations:
    """Reads files whose rows are conversations. `keys` are those that a row has."""

    name = ""
    keys: tuple[str, ...] = ()

    def sees(self, file: RecordedFile) -> bool:
        """Return True if the first row has the keys."""
        return any(self.is_row(one) for one in file.first_objects[:1])

    def is_row(self, row: Mapping[str, object]) -> bool:
        """Return True for a row of this kind."""
        return all(key in row for key in self.keys) and "role" not in row

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """A conversation for each row."""
        taken: set[str] = set()
        for record in file.records:
            if isinstance(record, IngestError):
                yield record
                continue
            row = record.value if isinstance(record.value, Mapping) else {}
            label = self.label(row) or str(record.number)
            label = label if label not in taken else f"{label}-{record.number}"
            taken.add(label)
            yield RecordedConversation(self._records(record, row, file), label=label, line=record.line)

    def label(self, row: Mapping[str, object]) -> str:
        """The name of a row, if it has one."""
        found = row.get("id")
        return str(found) if isinstance(found, int | str) else ""

    def messages(self, row: Mapping[str, object], file: RecordedFile) -> Iterator[Said]:
        """The messages of a row."""
        raise NotImplementedError

    def _records(self, record: Record, row: Mapping[str, object], file: RecordedFile) -> Iterator[Record | IngestError]:
        for number, (value, origin) in enumerate(self.messages(row, file), 1):
            yield from parts_of(evolve(record, number=number, is_line=False), [value], origin)


class ShareGpt(_RowsOfConversations):
    """Reads rows of `conversations`, each turn with `from` and `value`."""

    name = "sharegpt"
    keys = ("conversations",)

    def messages(self, row: Mapping[str, object], file: RecordedFile) -> Iterator[Said]:
        """The turns; what a function says answers the call before it, if that was not written as text."""
        system = text_under(row, "system")
        if system:
            yield role_message("system", system), None
        asked: list[str] = []
        for n, turn in enumerate(objects(row, "conversations")):
            name = turn.get("from") or turn.get("role")
            text = texts(turn.get("value") or turn.get("content"))
            if name in ("function_call", "tool_call"):
                calls = [chat_call(one, n * 100 + k) for k, one in enumerate(_json_objects(text))]
                asked += [str(one["id"]) for one in calls]
                yield role_message("assistant", "" if calls else text, calls), None
                continue
            role = role_of(name)
            if role == "tool" and asked:
                yield result(asked.pop(0), text), None
            else:
                yield role_message("user" if role == "tool" else role, text), "tool" if role == "tool" else None


def _json_objects(text: str) -> list[Mapping[str, object]]:
    with suppress(ValueError):
        found = json.loads(text)
        return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, Mapping)]
    return []


class PreferenceRows(_RowsOfConversations):
    """Reads rows of a prompt with the answer that was chosen, and of instructions with their output."""

    name = "preferences"

    def is_row(self, row: Mapping[str, object]) -> bool:
        """Return True for a row of either kind."""
        is_pair = "prompt" in row and ("chosen" in row or "completion" in row)
        return is_pair or ("instruction" in row and "output" in row)

    def messages(self, row: Mapping[str, object], file: RecordedFile) -> Iterator[Said]:
        """The prompt, then what was chosen; what was rejected is counted."""
        if "rejected" in row:
            file.left_out["rejected answer"] += 1
        asked = list(_dataset_messages(row.get("prompt"), "user"))
        if "instruction" in row:
            asked = [
                role_message(
                    "user", "\n\n".join(filter(None, (text_under(row, "instruction"), text_under(row, "input"))))
                )
            ]
        answer = row.get("chosen", row.get("completion", row.get("output")))
        answered = list(_dataset_messages(answer, "assistant"))
        if answered[: len(asked)] == asked:
            answered = answered[len(asked) :]
        for message in (*asked, *answered):
            yield message, None


def _dataset_messages(value: object, role: str) -> Iterator[Json]:
    if isinstance(value, str):
        yield role_message(role, value)
    for one in objects({"value": value}, "value"):
        yield chat_message(one)


class Bfcl(_RowsOfConversations):
    """Reads questions of BFCL: turns of messages, without answers."""

    name = "bfcl"
    keys = ("question",)

    def is_row(self, row: Mapping[str, object]) -> bool:
        """Return True if the questions are turns."""
        return isinstance(row.get("question"), list)

    def messages(self, row: Mapping[str, object], file: RecordedFile) -> Iterator[Said]:
        """The messages of all turns."""
        turns = row.get("question")
        for turn in turns if isinstance(turns, list) else ():
            for message in objects({"turn": turn if isinstance(turn, list) else [turn]}, "turn"):
                yield chat_message(message), None


class Tau2(_RowsOfConversations):
    """Reads the simulations of tau2's results."""

    name = "tau2"

    def sees(self, file: RecordedFile) -> bool:
        """Return True for an object with simulations."""
        return any(isinstance(one.get("simulations"), list) for one in file.first_objects[:1])

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """A conversation for each simulation, named by its task and trial."""
        for record in file.records:
            if isinstance(record, IngestError):
                yield record
                continue
            for n, simulation in enumerate(objects(record.value, "simulations"), 1):
                label = f"{simulation.get('task_id', n)}-{simulation.get('trial', 0)}"
                yield RecordedConversation(self._messages(record, simulation), label=label, line=record.line)

    def _messages(self, record: Record, simulation: Mapping[str, object]) -> Iterator[Record | IngestError]:
        for number, told in enumerate(objects(simulation, "messages"), 1):
            place = evolve(record, number=number, is_line=False, at=moment_of(told))
            for one in objects(told, "tool_messages") or [told]:
                value, origin = self._message(one)
                yield from parts_of(
                    evolve(place, key=f"{number}-{one.get('id')}" if one is not told else ""), [value], origin
                )

    def _message(self, told: Mapping[str, object]) -> Said:
        """One message. Calls and results of the simulated user's own tools become text."""
        content = text_under(told, "content")
        calls = objects(told, "tool_calls")
        is_users = told.get("requestor") == "user"
        match told.get("role"):
            case "tool" if is_users:
                return role_message("user", content), "tool"
            case "tool":
                return result(told.get("id"), content, failed=told.get("error") is True), None
            case "user":
                asked = [f"[{one.get('name')}({compact(one.get('arguments'))})]" for one in calls]
                return role_message("user", "\n".join(filter(None, (content, *asked)))), ""
            case "assistant":
                message = role_message("assistant", content, [chat_call(one) for one in calls])
                return response(message, {"usage": usage_of(told.get("usage"))}), None
        return role_message(role_of(told.get("role")), content), None


_NEVER = datetime.min.replace(tzinfo=UTC)


class Assistants:
    """Reads the messages of a thread of OpenAI's Assistants, in the order of their times."""

    name = "assistants"

    def sees(self, file: RecordedFile) -> bool:
        """Return True if the first object is a thread's message, or a list of them."""
        return any(_messages_of(one) for one in file.first_objects[:1])

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The one thread."""
        found: list[tuple[Mapping[str, object], Record]] = []
        for record in file.records:
            if isinstance(record, IngestError):
                yield record
            else:
                told = record.value if isinstance(record.value, Mapping) else {}
                found += [(one, record) for one in _messages_of(told)]
        found.sort(key=lambda one: moment(one[0].get("created_at")) or _NEVER)
        yield RecordedConversation(_of_assistants(found, file))


def _messages_of(told: Mapping[str, object]) -> list[Mapping[str, object]]:
    return [one for one in (objects(told, "data") or [told]) if one.get("object") == "thread.message"]


def _of_assistants(
    found: list[tuple[Mapping[str, object], Record]], file: RecordedFile
) -> Iterator[Record | IngestError]:
    for number, (told, record) in enumerate(found, 1):
        blocks = objects(told, "content")
        text = "\n".join(filter(None, (text_under(one, "text", "value") for one in blocks)))
        others = [one for one in blocks if one.get("type") != "text"]
        if others:
            file.left_out["file of a message"] += len(others)
        place = evolve(
            record, number=number, is_line=False, at=moment(told.get("created_at")), key=text_under(told, "id")
        )
        yield from parts_of(place, [role_message(role_of(told.get("role")), text)])


class Slack:
    """Reads a day of a channel, as Slack's export has it: what people say, each under their id."""

    name = "slack"

    def sees(self, file: RecordedFile) -> bool:
        """Return True if the first object is a message of Slack's."""
        return any(one.get("type") == "message" and "ts" in one and "role" not in one for one in file.first_objects[:1])

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The one channel."""
        yield RecordedConversation(_of_slack(file))


def _of_slack(file: RecordedFile) -> Iterator[Record | IngestError]:
    for record in file.records:
        if isinstance(record, IngestError):
            yield record
            continue
        told = record.value if isinstance(record.value, Mapping) else {}
        text = text_under(told, "text")
        if not text or told.get("subtype") in ("channel_join", "channel_leave"):
            file.left_out[text_under(told, "subtype") or "message without a text"] += 1
            continue
        name = text_under(told, "user_profile", "real_name") or text_under(told, "user") or text_under(told, "username")
        at = moment(float(ts)) if (ts := text_under(told, "ts")).replace(".", "", 1).isdigit() else None
        origin: MessageOrigin = "client" if told.get("bot_id") or told.get("subtype") == "bot_message" else ""
        yield from parts_of(evolve(record, at=at, key=ts), [{**role_message("user", text), "name": name}], origin)
