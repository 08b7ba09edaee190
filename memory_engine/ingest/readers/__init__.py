"""The built-in readers, a file each; the first that sees a recording reads it."""

from collections.abc import Sequence

from memory_engine.core.recordings import Reader, RecordedFile
from memory_engine.ingest.readers.claude_code import ClaudeCode
from memory_engine.ingest.readers.messages import ProviderMessages
from memory_engine.ingest.readers.openhands import OpenHandsEvents
from memory_engine.ingest.readers.swe_agent import SweAgent

BUILT_IN: tuple[Reader, ...] = (ClaudeCode(), SweAgent(), OpenHandsEvents(), ProviderMessages())


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
