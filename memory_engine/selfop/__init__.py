"""Agents work on their own memory: its operations as tools, for any model that calls tools."""

from memory_engine.selfop.answering import MemoryTools, ToolAnswer
from memory_engine.selfop.schemas import ToolFormat, memory_tools

__all__ = ["MemoryTools", "ToolAnswer", "ToolFormat", "memory_tools"]
