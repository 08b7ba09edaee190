"""Recorded conversations and logs, read from files and dispatched event by event, as they came live."""

from memory_engine.ingest.conversations import holds_a_log
from memory_engine.ingest.records import Format
from memory_engine.ingest.running import Ingestion, IngestOptions, IngestReport, ThreadIngested

__all__ = ["Format", "IngestOptions", "IngestReport", "Ingestion", "ThreadIngested", "holds_a_log"]
