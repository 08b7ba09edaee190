"""The views that every engine has."""

from typing import cast

from memory_engine.projections.base import Projection
from memory_engine.projections.conversation.folding import CONVERSATION
from memory_engine.projections.documents.folding import DOCUMENTS
from memory_engine.projections.flows import FLOWS
from memory_engine.projections.layers.entries import EPISODIC, LAYERS
from memory_engine.projections.layers.grants import GRANTS
from memory_engine.projections.outbox import FACTS, OUTBOX
from memory_engine.projections.patterns.folding import PATTERNS
from memory_engine.projections.patterns.pooling import POOL
from memory_engine.projections.playbooks import PLAYBOOKS
from memory_engine.projections.preferences.view import PREFERENCES
from memory_engine.projections.promotion.agent_md import AGENT_MD
from memory_engine.projections.promotion.verdicts import PROMOTION
from memory_engine.projections.screen import SCREEN
from memory_engine.projections.tool_cache import TOOL_CACHE

_PROJECTIONS: tuple[object, ...] = (
    OUTBOX,
    FACTS,
    PREFERENCES,
    PROMOTION,
    AGENT_MD,
    FLOWS,
    PLAYBOOKS,
    CONVERSATION,
    TOOL_CACHE,
    SCREEN,
    EPISODIC,
    LAYERS,
    GRANTS,
    PATTERNS,
    POOL,
    DOCUMENTS,
)


def builtin_projections() -> tuple[Projection[object], ...]:
    """Their folds, one instance each."""
    return tuple(cast("Projection[object]", projection) for projection in _PROJECTIONS)
