"""Model calls in a log: the runs of events that a response is recorded as."""

from attrs import define

from memory_engine.events.base import Event, UnknownEvent
from memory_engine.events.response import (
    LlmClarification,
    LlmSkillCall,
    LlmSubagentMessage,
    LlmSubagentSpawn,
    LlmTextResponse,
    LlmThinking,
    LlmToolCall,
)

RESPONSES = frozenset(
    cls.event_type
    for cls in (
        LlmTextResponse, LlmThinking, LlmToolCall, LlmSkillCall, LlmSubagentSpawn, LlmSubagentMessage, LlmClarification
    )
)  # fmt: skip
"""What a model's response is recorded as: the first of a run of such events marks a call."""
COMPACTIONS = frozenset(
    {"compaction_started", "compaction_completed", "compaction_failed", "compaction_abandoned", "compaction_undone"}
)
"""What a compaction, or its end, is recorded as."""
_BESIDE = COMPACTIONS | {"event_skipped"}
"""What may stand between the events of one response and ends it not."""


@define
class Runs:
    """Tells which call each event of a log belongs to, as the events come by."""

    _key: str = ""
    _last: str = ""
    _response_id: str = ""

    def next(self, event: Event | UnknownEvent, key: str, answers: str = "") -> tuple[str, bool]:
        """The key of the call that an event is of the response to (empty: none), and whether that is a new call.

        A new one gets the `key`, unless it is known which call the event `answers`.
        """
        event_type = event.type if isinstance(event, UnknownEvent) else event.event_type
        if event_type in _BESIDE:
            return "", False
        if event_type not in RESPONSES:
            self._key = ""
            return "", False
        response_id = getattr(event, "response_id", "")
        if answers:
            is_new, key = answers != self._last, answers
        else:
            is_new = not self._key or bool(response_id and self._response_id and response_id != self._response_id)
            key = key if is_new else self._key
        self._response_id = response_id or ("" if is_new else self._response_id)
        self._key = self._last = key
        return key, is_new
