"""The built-in readers, a file each; the first that sees a recording reads it."""

from collections.abc import Sequence

from memory_engine.core.recordings import Reader, RecordedFile
from memory_engine.ingest.readers.claude_code import ClaudeCode
from memory_engine.ingest.readers.codex import Codex
from memory_engine.ingest.readers.datasets import Assistants, Bfcl, PreferenceRows, ShareGpt, Slack, Tau2
from memory_engine.ingest.readers.exports import ChatGpt, ClaudeAi
from memory_engine.ingest.readers.gemini import Gemini
from memory_engine.ingest.readers.inspect import Inspect
from memory_engine.ingest.readers.langchain import LangChain
from memory_engine.ingest.readers.messages import ProviderMessages
from memory_engine.ingest.readers.openhands import OpenHandsEvents
from memory_engine.ingest.readers.swe_agent import SweAgent
from memory_engine.ingest.readers.texts import Aider, Mail, Transcripts
from memory_engine.ingest.readers.traces import TraceExports

BUILT_IN: tuple[Reader, ...] = (
    ClaudeCode(),
    Codex(),
    Gemini(),
    SweAgent(),
    OpenHandsEvents(),
    Inspect(),
    ChatGpt(),
    ClaudeAi(),
    LangChain(),
    ShareGpt(),
    PreferenceRows(),
    Bfcl(),
    Tau2(),
    Assistants(),
    Slack(),
    TraceExports(),
    Transcripts(),
    Mail(),
    Aider(),
    ProviderMessages(),
)


def reader_of(recording: RecordedFile, added: Sequence[Reader] = ()) -> Reader | None:
    """The reader that a recording's format names, or else the first that sees it; those `added` come first."""
    readers = (*added, *BUILT_IN)
    named = next((reader for reader in readers if reader.name == recording.format), None)
    if named is not None:
        return named
    if recording.format != "auto":
        return next(
            (reader for reader in BUILT_IN if isinstance(reader, ProviderMessages) and reader.sees(recording)), None
        )
    return next((reader for reader in readers if reader.sees(recording)), None)
