"""Files, images and what only a provider can read: in the log, the state, contexts, search and exports."""

import json
from pathlib import Path

import msgspec
import pytest

import memory_engine
from memory_engine import Chunk, FilePart, ImagePart, LlmTextResponse, LlmThinking, TextPart, ToolError, UserMessage
from memory_engine import events as e
from memory_engine.core.chunks import INTERRUPTED, content_text
from memory_engine.core.codec import decode_reduction
from memory_engine.core.tokens import FILE_TOKENS, IMAGE_TOKENS, PAGE_CHARS, estimate_content
from memory_engine.engine import kernel_of
from memory_engine.replay.export.redaction import Redaction

PDF = FilePart("data:application/pdf;base64,AA==", "application/pdf", "lease.pdf")
NOTE = FilePart(media_type="text/plain", name="note.txt", text="The lease ends in May.")
SEALED = '{"anthropic":{"message":[{"$whole":{"type":"redacted_thinking","data":"EmwKAhgB/+=="}}]}}'
EVENTS = [
    UserMessage(
        content=(TextPart("Read these."), PDF, NOTE, ImagePart("", file_id="img-1")), native='{"anthropic":{}}'
    ),
    LlmThinking(content="", native=SEALED),
    LlmTextResponse(content="Done.", native='{"anthropic":{"response":{"id":"msg_1"}}}'),
]


async def test_native_is_stored_once_and_stands_on_the_chunk() -> None:
    """The record of an event names what its chunk shares with it, native among it."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        receipts = await thread.dispatch_all(EVENTS)
        assert [event.native for event in EVENTS if isinstance(event, UserMessage | LlmThinking | LlmTextResponse)] == [
            receipt.chunks[0].native for receipt in receipts
        ]
        rows = await kernel_of(engine).reader.rows_at("t", {1, 2, 3})
        for row in rows.values():
            assert all(not chunk.native for chunk in decode_reduction(row.record).chunks)
            assert any("native" in share.fields for share in decode_reduction(row.record).shares)
        assert (await thread.replay.verify()).ok


async def test_files_are_in_the_context_in_their_own_form() -> None:
    """A PDF as a file, a plain text as text, and what chat-completions has no form for by its name."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all(
            [
                EVENTS[0],
                UserMessage(
                    content=(
                        FilePart(file_id="f-1"),
                        FilePart("https://a.org/b"),
                    )
                ),
            ]
        )
        files, others = [message["content"] for message in (await thread.context()).messages]
    assert [
        {"type": "text", "text": "Read these."},
        {"type": "file", "file": {"filename": "lease.pdf", "file_data": PDF.url}},
        {"type": "text", "text": "[file: note.txt]\nThe lease ends in May."},
        {"type": "text", "text": "[image: image]"},
    ] == files
    assert [{"type": "file", "file": {"file_id": "f-1"}}, {"type": "text", "text": "[file: file]"}] == others


async def test_an_image_keeps_how_closely_to_look() -> None:
    """The provider's `detail` goes back to it."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        await thread.dispatch(UserMessage(content=(ImagePart("https://a.org/a.png", detail="low"),)))
        (message,) = (await thread.context()).messages
    assert [{"type": "image_url", "image_url": {"url": "https://a.org/a.png", "detail": "low"}}] == message["content"]


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (ImagePart("https://a.org/a.png"), IMAGE_TOKENS),
        (PDF, FILE_TOKENS),
        (FilePart("data:application/pdf;base64," + "A" * 3 * PAGE_CHARS), 4 * FILE_TOKENS),
        (NOTE, 6),
    ],
)
def test_files_and_images_count(part: ImagePart | FilePart, tokens: int) -> None:
    """A page at least for a file whose pages nobody knows, and the text of one that has it."""
    assert tokens == estimate_content((part,))


async def test_the_text_of_a_file_is_found() -> None:
    """It was said, as much as the message that it came with."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        await thread.dispatch(EVENTS[0])
        assert [1] == [hit.seq for hit in await thread.search("when does the lease end?")]


async def test_off_loading_keeps_files() -> None:
    """A result gets shorter by its text alone."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        call = e.LlmToolCall(calls=(e.ToolCall("c1", "read"),))
        await thread.dispatch_all([call, e.ToolResult(call_id="c1", content=(TextPart("x" * 30_000), PDF))])
        await thread.compaction.offload()
        content = [chunk.content for chunk in (await thread.state()).chunks()][-1]
    assert PDF == content[-1]
    assert len(content_text(content)) < 1_000


async def test_a_redaction_takes_files_and_native_out(tmp_path: Path) -> None:
    """Nothing of them is left in the file, which verifies."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([*EVENTS, ToolError(call_id="c", content=(PDF,))])
        await thread.replay.export(
            tmp_path / "log.jsonl", redaction=Redaction(types=("user_message", "llm_thinking", "tool_error"))
        )
        text = (tmp_path / "log.jsonl").read_text(encoding="utf-8")
        assert [] == [word for word in ("EmwKAhgB", "lease", "May", "AA==") if word in text]
        await engine.transfer.import_log(tmp_path / "log.jsonl", thread_id="u", scopes="as exported")
        assert (await engine.thread("u").replay.verify()).ok


async def test_a_response_that_broke_off_says_so() -> None:
    """Its chunk is marked; one that broke off before a word of it is in no context."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([LlmTextResponse(content=said, interrupted="cancelled") for said in ("Ye", "")])
        assert [INTERRUPTED] * 2 == [chunk.status for chunk in (await thread.state()).chunks()]
        assert [{"role": "assistant", "content": "Ye"}] == list((await thread.context()).messages)


def test_an_event_without_the_new_fields_is_the_bytes_it_was() -> None:
    """So is a chunk: old logs keep their hashes."""
    assert b'{"content":"Hi"}' == msgspec.json.encode(UserMessage(content="Hi"))
    chunk = Chunk(id="1.0", type="user_message", content="Hi")
    assert {"id": "1.0", "type": "user_message", "content": "Hi"} == json.loads(msgspec.json.encode(chunk))
