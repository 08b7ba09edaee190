"""Recorded conversations and logs, read from files and dispatched event by event, as they came live."""

from memory_engine.core.recordings import Reader, Record, RecordedConversation, RecordedFile
from memory_engine.ingest.filling import ThreadIngested
from memory_engine.ingest.ingestion import Ingestion, IngestOptions, IngestReport
from memory_engine.ingest.readers.messages import holds_a_log
from memory_engine.ingest.records import Format

__all__ = [
    "Format",
    "IngestOptions",
    "IngestReport",
    "Ingestion",
    "Reader",
    "Record",
    "RecordedConversation",
    "RecordedFile",
    "ThreadIngested",
    "holds_a_log",
]
