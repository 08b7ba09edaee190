"""Promotion: which of a conversation's findings are worth keeping beyond it, where they go, and why."""

from memory_engine.projections.promotion.model_scorers import ModelScorer
from memory_engine.projections.promotion.routing import Placement, Route, route_by_wording
from memory_engine.projections.promotion.scoring import (
    Explicit,
    Frequency,
    PromotionContext,
    Salience,
    Score,
    Scorer,
    Surprisal,
    embedded_scorers,
)
from memory_engine.projections.promotion.verdicts import Verdict
from memory_engine.projections.promotion.view import Promotion, PromotionReport

__all__ = [
    "Explicit",
    "Frequency",
    "ModelScorer",
    "Placement",
    "Promotion",
    "PromotionContext",
    "PromotionReport",
    "Route",
    "Salience",
    "Score",
    "Scorer",
    "Surprisal",
    "Verdict",
    "embedded_scorers",
    "route_by_wording",
]
