"""Projections: read models fed by the log, checkpointed, dropped and rebuilt at will."""

from memory_engine.projections.base import Projection, ProjectionMode, ReadableRows, Rows, View, seq_key

__all__ = ["Projection", "ProjectionMode", "ReadableRows", "Rows", "View", "seq_key"]
