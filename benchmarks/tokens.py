"""The counter of tokens that needs no tokenizer, against real ones: kind by kind, and what correction makes of it."""

from collections.abc import Iterator
from typing import Protocol

from benchmarks.figures import Bar, Figure, Reference
from benchmarks.setting import Setting, say
from benchmarks.token_kinds import kinds
from memory_engine.core.tokens import EstimatedTokens, recorded_tokens
from memory_engine.errors import MissingExtra
from memory_engine.llm import Tokenizer

LEAST, MOST = 1.0, 1.4
"""Allowed range of each kind's count, as a ratio to the tokens of `TRUTH`."""
TRUTH, OTHER = "o200k_base", "cl100k_base"


class Counts(Protocol):
    """Whatever counts the tokens of a text."""

    def count(self, text: str) -> int:
        """The tokens of `text`."""
        ...


async def tokens(_setting: Setting) -> list[Figure]:
    """Counted over real tokens of each kind of text, without a tokenizer's table; 1.0 to 1.4 is meant."""
    try:
        truth, other = Tokenizer(TRUTH), Tokenizer(OTHER)
    except MissingExtra as error:
        say(f"tokens: nothing is measured: {error}")
        return []
    return list(_figures(truth, other))


def _figures(truth: Counts, other: Counts) -> Iterator[Figure]:
    counter = EstimatedTokens()
    for name, text in kinds():
        real, counted = truth.count(text), counter.count(text)
        ratio = counted / real
        yield Figure(
            bench="tokens",
            case=name,
            value=ratio,
            unit="counted / real",
            reference=Reference("a token every four bytes", recorded_tokens(text) / real),
            bar=Bar("value", ">=", LEAST) if ratio < MOST else Bar("value", "<=", MOST),
            detail={OTHER: counted / other.count(text), "tokens": real},
        )
