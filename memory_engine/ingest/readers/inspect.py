"""Logs of Inspect, as JSON or as the archive `.eval`: a conversation for each sample and epoch."""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import evolve

from memory_engine.core.bounded import open_file
from memory_engine.core.moments import moment
from memory_engine.core.recordings import Record, RecordedConversation, RecordedFile
from memory_engine.errors import IngestError
from memory_engine.ingest.dialects import (
    Json,
    chat_call,
    objects,
    parts_of,
    response,
    result,
    role_message,
    role_of,
    text_under,
    texts,
    under,
    usage_of,
)
from memory_engine.ingest.json_stream import VALUE_CHARS_MAX, BrokenText, parse

_SAMPLE_BYTES_MAX = VALUE_CHARS_MAX


class Inspect:
    """Reads the messages of samples; their times and usage are those of the matching events."""

    name = "inspect"

    def sees(self, file: RecordedFile) -> bool:
        """Return True for an object with samples, and for an archive of them."""
        if file.path.suffix == ".eval":
            return True
        return any(isinstance(one.get("samples"), list) and "eval" in one for one in file.first_objects[:1])

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The samples."""
        if file.path.suffix == ".eval":
            try:
                yield from _archived(file)
            except (OSError, zipfile.BadZipFile) as error:
                yield IngestError(str(file.path), 1, f"cannot be read as an archive of Inspect: {error}")
            return
        for record in file.records:
            if isinstance(record, IngestError):
                yield record
                continue
            for sample in objects(record.value, "samples"):
                yield _sample(record, sample, file)


def _archived(file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
    with open_file(file.path) as opened, zipfile.ZipFile(opened) as archive:
        for entry in archive.infolist():
            if not entry.filename.startswith("samples/") or Path(entry.filename).suffix != ".json":
                continue
            if entry.file_size > _SAMPLE_BYTES_MAX:
                yield IngestError(str(file.path), 1, f"{entry.filename} is over {_SAMPLE_BYTES_MAX >> 20} MB")
                continue
            try:
                value = parse(archive.read(entry).decode(), 1, file.limits)
            except (BrokenText, UnicodeDecodeError, zipfile.BadZipFile) as error:
                why = error.why if isinstance(error, BrokenText) else str(error)
                yield IngestError(str(file.path), 1, f"{entry.filename} is {why}")
                continue
            yield _sample(Record(value, 1, 1), value if isinstance(value, Mapping) else {}, file)


def _sample(record: Record, sample: Mapping[str, object], file: RecordedFile) -> RecordedConversation:
    label = f"{sample.get('id', record.number)}-{sample.get('epoch', 1)}"
    return RecordedConversation(_sample_messages(record, sample, file), label=label, line=record.line)


def _sample_messages(
    record: Record, sample: Mapping[str, object], file: RecordedFile
) -> Iterator[Record | IngestError]:
    told: dict[str, tuple[object, Mapping[str, object]]] = {}
    for event in objects(sample, "events"):
        output = under(event, "output")
        its = output if isinstance(output, Mapping) else {}
        for choice in objects(its, "choices")[:1]:
            told[text_under(choice, "message", "id")] = event.get("completed") or event.get("timestamp"), its
        if event.get("event") == "tool":
            told[text_under(event, "id")] = event.get("completed") or event.get("timestamp"), {}
    for key in ("scores", "error", "attachments"):
        if sample.get(key):
            file.left_out[f"{key} of a sample"] += 1
    for number, message in enumerate(objects(sample, "messages"), 1):
        named = text_under(message, "tool_call_id") or text_under(message, "id")
        at, output = told.get(named, (None, {})) if named else (None, {})
        place = evolve(record, number=number, is_line=False, at=moment(at))
        yield from parts_of(place, [_inspect_message(message, output)])


def _inspect_message(told: Mapping[str, object], output: Mapping[str, object]) -> Json:
    role = role_of(told.get("role"))
    content = told.get("content")
    blocks = objects(told, "content")
    match role:
        case "tool":
            error = text_under(told, "error", "message")
            text = "\n".join(filter(None, (texts(content), error)))
            return result(told.get("tool_call_id"), text, name=text_under(told, "function"), failed=bool(error))
        case "assistant":
            thoughts = "\n".join(filter(None, (text_under(one, "reasoning") for one in blocks)))
            text = content if isinstance(content, str) else texts([one for one in blocks if one.get("type") == "text"])
            calls = [chat_call(one, n) for n, one in enumerate(objects(told, "tool_calls"))]
            around = {"model": told.get("model") or output.get("model"), "usage": usage_of(output.get("usage"))}
            named = {"id": told.get("id")} if around["usage"] else {}
            return response(role_message("assistant", text, calls, thoughts), {**named, **around})
    return role_message(role, _inspect_content(content, blocks))


def _inspect_content(content: object, blocks: list[Mapping[str, object]]) -> object:
    if any(one.get("type") == "image" for one in blocks):
        return [
            {"type": "image_url", "image_url": {"url": text_under(one, "image")}}
            if one.get("type") == "image"
            else {"type": "text", "text": text_under(one, "text")}
            for one in blocks
        ]
    return texts(content)
