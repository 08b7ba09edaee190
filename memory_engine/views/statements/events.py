"""Whether a later statement replaces an earlier one, as a model or a person decided."""

from typing import Literal

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import Id, SourceSeq
from memory_engine.errors.effects import Usage

Verdict = Literal["replaced", "holds", "unrelated", "unclear"]
"""What a later statement does to an earlier one: it replaces it, leaves it true, or is about another matter.

`unclear`: the model's answer was none of these.
"""


@event("statements_compared", tracked=True, role="memory", chunks="none", upkeep=True)
class StatementsCompared(Event):
    """What the statement in the event at `newer` does to that in the event at `older`.

    `older_n` and `newer_n` say which passage of each event. A decision is of `model`, asked in the words of version
    `prompt`, or of a person, `by`. `failure`: why the model's answer is unclear. Forgetting either statement takes the
    decision away.
    """

    older: SourceSeq
    newer: SourceSeq
    verdict: Verdict
    older_n: int = 0
    newer_n: int = 0
    model: Id = ""
    prompt: int = 0
    usage: Usage | None = None
    failure: str = ""
    by: str = ""
