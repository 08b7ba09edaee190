"""Rollouts of Codex: items of Responses with their times, and the counts of tokens after each response."""

from collections import Counter
from collections.abc import Iterator, Mapping

from attrs import define, evolve, field

from memory_engine.core.events.messages import MessageOrigin
from memory_engine.core.moments import moment
from memory_engine.core.recordings import PAUSE, Record, RecordedConversation, RecordedFile
from memory_engine.errors import IngestError
from memory_engine.formats import openai_responses
from memory_engine.formats.values import compact
from memory_engine.ingest.dialects import Json, objects, text_under, texts, under

_LINES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_OF_CLIENT = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<skill>")


class Codex:
    """Reads a rollout of today's form, or of the one whose lines are the items themselves."""

    name = "codex"

    def sees(self, file: RecordedFile) -> bool:
        """Return True if the first lines are a rollout's."""
        return any(
            (text_under(one, "type") in _LINES and isinstance(one.get("payload"), Mapping))
            or one.get("record_type") == "state"
            for one in file.first_objects
        )

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The session."""
        yield RecordedConversation(_Rollout(file.left_out).records(file.live))


@define
class _Rollout:
    """Holds the items of a response until its tokens are known: they come after it, maybe after the results, too."""

    left_out: Counter[str]
    _held: list[Record | IngestError] = field(factory=list)
    _last: int = -1
    _is_answered: bool = False
    _response: int = 0
    _total: object = None

    def records(self, lines: Iterator[Record | IngestError]) -> Iterator[Record | IngestError]:
        for line in lines:
            if isinstance(line, IngestError) or line.value is PAUSE:
                yield from self._ended()
                yield line
                continue
            told = line.value if isinstance(line.value, Mapping) else {}
            yield from self._line(line, told)
        yield from self._ended()

    def _line(self, line: Record, told: Mapping[str, object]) -> Iterator[Record | IngestError]:
        kind, payload = text_under(told, "type"), under(told, "payload")
        at = moment(told.get("timestamp"))
        of_item = told if kind not in _LINES and "type" in told else payload if kind == "response_item" else None
        if isinstance(of_item, Mapping):
            yield from self._item(evolve(line, at=at), _codex_item(of_item))
        elif kind == "event_msg" and text_under(payload, "type") == "token_count":
            yield from self._counted(under(payload, "info"))
        elif kind == "compacted":
            yield from self._ended()
            summary: Json = {"role": "user", "content": text_under(payload, "message")}
            yield evolve(line, value=summary, format="openai.chat", at=at, origin="summary")
        elif kind == "session_meta" and (said := _instructions(payload)):
            yield evolve(line, value={"role": "system", "content": said}, format="openai.chat", at=at)
        elif kind != "session_meta":
            more = text_under(payload, "type")
            self.left_out[f"{kind or 'a line without a type'}{'/' if more else ''}{more}"] += 1

    def _item(self, line: Record, item: Json) -> Iterator[Record | IngestError]:
        if not openai_responses.is_answer(item):
            if text_under(item, "type") not in openai_responses.OUTPUTS:
                yield from self._ended()
            self._is_answered = True
            self._held.append(evolve(line, value=item, format=openai_responses.FORMAT, origin=_origin(item)))
            if self._last < 0:
                yield from self._ended()
            return
        if self._is_answered or self._last < 0:
            yield from self._ended()
            self._response = line.number
        self._last = len(self._held)
        response: Json = {"object": "response", "id": f"response-{self._response}", "output": [item]}
        self._held.append(evolve(line, value=response, format=openai_responses.FORMAT))

    def _counted(self, info: object) -> Iterator[Record | IngestError]:
        """Take the count of the response before; it is repeated whenever limits change."""
        total, usage = under(info, "total_token_usage"), under(info, "last_token_usage")
        if not isinstance(usage, Mapping) or total == self._total:
            return
        self._total = total
        last = self._held[self._last] if self._last >= 0 else None
        if isinstance(last, Record) and isinstance(last.value, dict):
            counted = {**usage, "input_tokens_details": {"cached_tokens": usage.get("cached_input_tokens", 0)}}
            self._held[self._last] = evolve(last, value={**last.value, "usage": counted})
            yield from self._ended()
        else:
            self.left_out["usage of no response"] += 1

    def _ended(self) -> Iterator[Record | IngestError]:
        held, self._held, self._last, self._is_answered = self._held, [], -1, False
        yield from held


def _codex_item(told: Mapping[str, object]) -> Json:
    """The item, its output a text or parts."""
    item = {key: value for key, value in told.items() if key != "timestamp"}
    output = item.get("output")
    if isinstance(output, Mapping):
        item["output"] = text_under(output, "content") or texts(output.get("content")) or compact(output)
    return item


def _instructions(payload: object) -> str:
    return text_under(payload, "base_instructions", "text") or text_under(payload, "instructions")


def _origin(item: Json) -> MessageOrigin | None:
    text = texts(item.get("content")) if item.get("role") == "user" else ""
    return "client" if text.lstrip().startswith(_OF_CLIENT) or not objects(item, "content") else None
