"""Runs of SWE-agent (`.traj`) and of mini-swe-agent (`.traj.json`), with function calls or as a loop of texts.

In a loop of texts, an observation is a message of the user role after an action: it is marked as what it is.
"""

from collections.abc import Iterator, Mapping

from memory_engine.core.events.messages import MessageOrigin
from memory_engine.core.moments import moment, moment_of
from memory_engine.core.recordings import Record, RecordedConversation, RecordedFile
from memory_engine.errors import IngestError
from memory_engine.ingest.dialects import (
    Json,
    chat_message,
    objects,
    response,
    role_message,
    text_under,
    under,
    usage_of,
)

_KEPT = ("role", "content", "tool_calls", "tool_call_id", "tool_call_ids", "name", "reasoning_content")
_DERIVED = frozenset({"history", "trajectory", "messages", "trajectory_format", "environment"})


class SweAgent:
    """Reads the history of a run; where it has none, the steps of its trajectory."""

    name = "swe-agent"

    def sees(self, file: RecordedFile) -> bool:
        """Return True for an object with a history or a trajectory of steps, or with mini-swe-agent's messages."""
        if "trajectory_format" in file.head:
            return True
        first = file.first[0] if file.first else None
        steps = objects(first, "trajectory")
        return bool(objects(first, "history")) or bool(steps and "observation" in steps[0])

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """One conversation for each run."""
        if "trajectory_format" in file.head:
            self._rest(file, file.head)
            yield RecordedConversation(_read_trajectory(file.records))
            return
        for run in file.records:
            if isinstance(run, IngestError):
                yield run
                continue
            told = run.value if isinstance(run.value, Mapping) else {}
            self._rest(file, told)
            history = objects(told, "history")
            messages = history if _is_whole(history, told) else [*history, *_steps(told)]
            records = (Record(dict(one), run.line, n) for n, one in enumerate(messages, 1))
            yield RecordedConversation(_read_trajectory(records), label=str(run.number) if run.is_line else "")

    def _rest(self, file: RecordedFile, told: Mapping[str, object]) -> None:
        for key, value in told.items():
            if key not in _DERIVED and value:
                file.left_out[f"{key} of the run"] += 1


def _is_whole(history: list[Mapping[str, object]], told: Mapping[str, object]) -> bool:
    """Return True if a history has the model's messages, which a trajectory repeats."""
    return any(one.get("role") == "assistant" for one in history) or not objects(told, "trajectory")


def _steps(told: Mapping[str, object]) -> Iterator[Json]:
    for step in objects(told, "trajectory"):
        yield role_message("assistant", text_under(step, "response") or text_under(step, "thought"))
        yield {"role": "user", "content": text_under(step, "observation"), "message_type": "observation"}


def _read_trajectory(records: Iterator[Record | IngestError]) -> Iterator[Record | IngestError]:
    acted = has_calls = begun = False
    for record in records:
        if isinstance(record, IngestError) or not isinstance(record.value, Mapping):
            yield record
            continue
        told = record.value
        role = told.get("role")
        has_calls = has_calls or bool(told.get("tool_calls"))  # its observations are results
        is_observation = role == "user" and acted and begun and not has_calls and not told.get("is_demo")
        value = _trajectory_message(told)
        at = moment_of(told) or moment_of(_extra(told))
        origin: MessageOrigin | None = None
        if role == "user":
            origin = "tool" if is_observation else "client" if told.get("is_demo") else ""
        yield Record(value, record.line, record.number, record.is_line, "openai.chat", at, origin)
        begun = begun or role == "user"
        acted = role == "assistant"


def _trajectory_message(told: Mapping[str, object]) -> Json:
    kept = {key: told[key] for key in _KEPT if told.get(key) is not None}
    blocks = objects(told, "thinking_blocks")
    thoughts = "\n".join(filter(None, (text_under(one, "thinking") for one in blocks)))
    if thoughts:
        kept.setdefault("reasoning_content", thoughts)
    message = chat_message({"content": "", **kept})
    original = under(told, "extra", "response")
    if told.get("role") != "assistant" or not isinstance(original, Mapping):
        return message
    around: Json = {key: original.get(key) for key in ("id", "model", "created")}
    return response(message, {**around, "usage": usage_of(original.get("usage"))})


def _extra(told: Mapping[str, object]) -> Mapping[str, object]:
    extra = told.get("extra")
    found = extra if isinstance(extra, Mapping) else {}
    created = under(found, "response", "created")
    return {**found, "created": created} if moment(created) is not None else found
