"""Recorded conversations and logs, read from files and dispatched event by event, as they came live."""

from memory_engine.ingest.chat import holds_a_log
from memory_engine.ingest.ingestion import Ingestion, IngestOptions, IngestReport, ThreadIngested
from memory_engine.ingest.records import Format

__all__ = ["Format", "IngestOptions", "IngestReport", "Ingestion", "ThreadIngested", "holds_a_log"]
