"""Agents: a run from start to end, what it learned, and an agent's own memory as tools that models call."""

from memory_engine.agents.extraction import Fact, FactExtractor, Finished, ModelFacts, Said, StatedFacts
from memory_engine.agents.lifecycle import AgentLifecycle, Run
from memory_engine.agents.preparation import Preparation
from memory_engine.agents.tools import MemoryTools, ToolAnswer, ToolFormat, memory_tools

__all__ = [
    "AgentLifecycle",
    "Fact",
    "FactExtractor",
    "Finished",
    "MemoryTools",
    "ModelFacts",
    "Preparation",
    "Run",
    "Said",
    "StatedFacts",
    "ToolAnswer",
    "ToolFormat",
    "memory_tools",
]
