"""An agent's run, remembered: what it should know at the start, what it did, what came of it, what it learned."""

from memory_engine.lifecycle.extraction import Extractor, Fact, Finished, ModelFacts, Said, StatedFacts
from memory_engine.lifecycle.preparing import Preparation
from memory_engine.lifecycle.run import Run
from memory_engine.lifecycle.running import AgentLifecycle

__all__ = [
    "AgentLifecycle",
    "Extractor",
    "Fact",
    "Finished",
    "ModelFacts",
    "Preparation",
    "Run",
    "Said",
    "StatedFacts",
]
