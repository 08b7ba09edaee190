"""The author of a message of the user role: a person, a tool, the client software, or a tool that summarised.

It is decided once, when the message is recorded or ingested, by structure and never by what the words mean:

1. flags that the client software puts on its messages (`isMeta`, `isCompactSummary`, `message_type`, …);
2. messages that hold nothing but what the client writes in its own tags (`<system-reminder>`, `<command-name>`, …);
3. in loops whose actions are written as text, the form of the response before. One that ends in a call written out
   (`<function=…>`, `<tool_call>`, `Action:` with `Action Input:`) is answered by a tool. Other forms, such as a single
   fenced block at the end, occur in talks about code, too. There a reply is a tool's once it has the frame of earlier
   replies to the same form: `Observation:` before it, `bash-$` behind it.

Where a loop has such a frame, a message without it is a person who interrupts. A message with a speaker's name is a
person's, and in doubt a message is.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from re import RegexFlag
from typing import TypeVar

import msgspec

from memory_engine.core.chunks import ChunkType, content_text
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import ExternalInject, SessionStarted
from memory_engine.core.events.messages import LlmTextResponse, LlmThinking, MessageOrigin, UserMessage
from memory_engine.core.lazy import regex
from memory_engine.core.state import State
from memory_engine.formats.native import Json

E = TypeVar("E", bound=Event)
REPLIES_KEPT = 8
"""Maximum number of the newest replies to written actions whose frames are compared."""
ALIKE_MIN = 2
"""Minimum number of earlier replies with the same frame to call a reply a tool's, if its action's form is ambiguous."""
EDGE_CHARS = 1_000
"""Number of characters at either end of a reply that are searched for marks."""
HEARD_BACK = 40
"""Number of the newest chunks read to find who writes the next message of the user role."""
ORIGINS: Mapping[str, MessageOrigin] = {
    ChunkType.USER_MESSAGE: "",
    ChunkType.OBSERVATION: "tool",
    ChunkType.NOTICE: "client",
    ChunkType.FOREIGN_SUMMARY: "summary",
}
"""The origin with which each type of user-role chunk was recorded."""
_HEARD = frozenset(
    {
        ChunkType.AGENT_RESPONSE, ChunkType.AGENT_ACTION, ChunkType.ACTION_RESULT, ChunkType.ERROR, ChunkType.SYSTEM,
        ChunkType.CLARIFICATION, ChunkType.EXTERNAL, ChunkType.PARENT_MESSAGE, ChunkType.SUBAGENT_MESSAGE, *ORIGINS,
    }
)  # fmt: skip
"""Chunks of speech and actions; others do not show who speaks next."""
_CALL_TAGS = r"function|function_calls?|tool_calls?|tool_use|tool_code|(?:\w+:)?invoke|execute_\w+"
_CLIENT_TAGS = (
    r"system-reminder|command-name|command-message|command-args|command-contents|local-command-\w+|bash-stdout|"
    r"bash-stderr|task-notification|ide_opened_file|ide_selection|[\w-]+-hook|environment_context|environment_details"
)
_CLIENT_LINES = frozenset({"[Request interrupted by user]", "[Request interrupted by user for tool use]"})
"""Constants that a client inserts when a person interrupts a response."""
_CALL = regex(rf"^[ \t]*<({_CALL_TAGS})(?:[=\s][^<>\n]*)?>", RegexFlag.MULTILINE)
_CLOSING = regex(r"</[\w.:-]+>")
_LAST_TAG = regex(r"</([A-Za-z][\w.:-]*)>$")
_FENCE = regex(r"^[ \t]{0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n`]*$", RegexFlag.MULTILINE)
_REACT = regex(r"^Action:[^\n]*\S[^\n]*\n+Action Input:", RegexFlag.MULTILINE)
_REACT_GOES_ON = regex(r"^(?:Final Answer|Observation|Thought):", RegexFlag.MULTILINE)
_FIELD = regex(r"^[ \t]*([^\W\d][\w -]{0,24}?)(?: ?\d+)?[ \t]*[:\uff1a][ \t]*\S")
_LABEL = regex(r"^\s*[\[(<{]*\s*(?:[^\s\[(<{:\uff1a>\])}]+[ \t]?){1,4}[\[(<{:\uff1a>\])}]")
_PROMPT = regex(r"^\S{0,30}[$#%>]$")
_CLIENT_BLOCK = regex(rf"\s*<({_CLIENT_TAGS})(?:\s[^<>]*)?>(.*?)</\1>\s*", RegexFlag.DOTALL)
_LABEL_CHARS = 60
_HEAD = "head "


class Form(msgspec.Struct, frozen=True, gc=False):
    """The form in which a response ends in an action. `sure`: only loops write it."""

    name: str
    sure: bool = False


class HeardReply(msgspec.Struct, frozen=True, gc=False):
    """A reply to an action: the action's form, and the marks at its edges. `is_tools`: it was found to be a tool's."""

    form: str
    frame: frozenset[str]
    is_tools: bool


Earlier = Callable[["Hearing"], None]
"""Feeds a hearing what a thread already holds."""


class Hearing:
    """The part of a thread's history that shows who writes the next message of the user role.

    `earlier` feeds it the messages before. It is called once, for the first message that depends on it.
    """

    def __init__(self, earlier: Earlier | None = None) -> None:
        self._earlier = earlier
        self._instructions = ""
        self._form: Form | None = None
        self._follows = False
        """True if the model spoke last."""
        self._has_heard = False
        self._replies: tuple[HeardReply, ...] = ()
        self._openings: frozenset[str] = frozenset()

    def copy(self) -> "Hearing":
        """Return a copy whose changes leave this one untouched."""
        copied = Hearing(self._earlier)
        copied._instructions, copied._form, copied._has_heard = self._instructions, self._form, self._has_heard
        copied._replies, copied._openings, copied._follows = self._replies, self._openings, self._follows
        return copied

    def instructed(self, text: str) -> None:
        """Take instructions: the next speaker answers no action."""
        self._instructions = text
        self.interrupted()

    def responded(self, text: str) -> None:
        """Take a text of the model."""
        self._form, self._follows, self._has_heard = form_of(text), True, True

    def interrupted(self) -> None:
        """Take anything else: the next message does not answer a text of the model."""
        self._form, self._follows, self._has_heard = None, False, True

    def said(
        self, text: str, *, name: str = "", known: MessageOrigin | None = None, is_observation: bool = False
    ) -> MessageOrigin:
        """Return the origin of the next message of the user role, and add the message; `known` if already decided.

        `is_observation`: the client calls the message an observation. It may call the initial task one, too.
        """
        if self._form is not None or not self._has_heard:
            self._recall()
        form, follows = self._form, self._follows
        self.interrupted()
        frame = frame_of(text)
        if known is None and is_observation and follows:
            known = "tool"
        if form is None:
            self._openings |= frame
            return known or ""
        origin = known if known is not None else self._answer(form, frame, name)
        self._replies = (*self._replies, HeardReply(form.name, frame, origin == "tool"))[-REPLIES_KEPT:]
        return origin

    def _recall(self) -> None:
        """Feed the messages before everything heard so far."""
        if self._earlier is None:
            return
        begun = Hearing()
        self._earlier(begun)
        self._earlier = None
        if not self._has_heard:
            self._form, self._follows = begun._form, begun._follows
        self._instructions = self._instructions or begun._instructions
        self._replies = (*begun._replies, *self._replies)[-REPLIES_KEPT:]
        self._openings |= begun._openings

    def _answer(self, form: Form, frame: frozenset[str], name: str) -> MessageOrigin:
        if name:
            return ""
        same = [reply for reply in self._replies if reply.form == form.name]
        if form.sure:
            is_other = _have_frame(same) and not any(reply.frame & frame for reply in same)
            return "" if is_other else "tool"
        of_people = {mark for mark in self._openings if mark.startswith(_HEAD)}
        alike = [reply for reply in same if reply.frame & frame - of_people]
        if len(alike) >= ALIKE_MIN or any(reply.is_tools for reply in alike):
            return "tool"
        is_framed = bool(alike) or bool(frame & self._openings - of_people)
        return "tool" if is_framed and self._is_shown(form) else ""

    def _is_shown(self, form: Form) -> bool:
        """Return True if the instructions show the form of the action."""
        kind, _, name = form.name.partition(" ")
        if kind == "fence":
            return any(fence[2] == name for fence in _FENCE.finditer(self._instructions))
        if kind == "tag":
            return f"<{name}" in self._instructions
        fields = map(_FIELD.match, self._instructions.splitlines()) if kind == "field" else ()
        return any(field is not None and field[1].casefold() == name for field in fields)


def hear_state(state: State, hearing: Hearing) -> None:
    """Feed the hearing the instructions at a state's start, and as much of its end as may show who speaks next."""
    newest = list(islice(state.newest(), HEARD_BACK))
    if all(chunk.type != ChunkType.AGENT_RESPONSE for chunk in newest):
        return
    for chunk in islice(state.chunks(), HEARD_BACK):
        if chunk.type == ChunkType.SYSTEM:
            hearing.instructed(chunk.text)
    for chunk in reversed(newest):
        if chunk.type == ChunkType.AGENT_RESPONSE:
            hearing.responded(chunk.text)
        elif chunk.type in ORIGINS:
            hearing.said(chunk.text, known=ORIGINS[chunk.type])
        elif chunk.type in _HEARD:
            hearing.interrupted()


def _have_frame(replies: list[HeardReply]) -> bool:
    """Return True if the newest earlier replies that are a tool's share a mark."""
    newest = [reply.frame for reply in replies if reply.is_tools][-ALIKE_MIN:]
    return len(newest) == ALIKE_MIN and bool(frozenset.intersection(*newest))


def form_of(text: str) -> Form | None:
    """Return the form of the action that ends the response; `None` if no action does."""
    text = text.strip()
    if not text:
        return None
    return _written_call(text) or _last_fence(text) or _last_element(text) or _json_object(text) or _last_field(text)


def _written_call(text: str) -> Form | None:
    calls = list(_CALL.finditer(text)) if "<" in text else []
    if calls:
        last = calls[-1]
        _, closed, after = text[last.end() :].rpartition(f"</{last[1]}>")
        outer = _CLOSING.sub("", after) if closed else ""
        if not outer.strip() and not _in_fence(text, last.start()):
            return Form(f"call {last[1]}", sure=True)
    asked = list(_REACT.finditer(text)) if "Action Input:" in text else []
    is_last = bool(asked) and not _REACT_GOES_ON.search(text, asked[-1].end())
    return Form("call react", sure=True) if is_last and not _in_fence(text, asked[-1].start()) else None


def _in_fence(text: str, at: int) -> bool:
    return sum(1 for _ in _FENCE.finditer(text, 0, at)) % 2 == 1


def _last_fence(text: str) -> Form | None:
    fences = list(_FENCE.finditer(text)) if text.endswith(("```", "~~~")) else []
    is_only = len(fences) == 2 and not fences[1][2] and fences[1].end() == len(text)
    return Form(f"fence {fences[0][2]}") if is_only else None


def _last_element(text: str) -> Form | None:
    found = _LAST_TAG.search(text)
    if found is None or f"<{found[1]}" not in text[: found.start()] or _in_fence(text, found.start()):
        return None
    return Form(f"tag {found[1]}")


def _json_object(text: str) -> Form | None:
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return Form(f"json {' '.join(sorted(value))}") if isinstance(value, dict) else None


def _last_field(text: str) -> Form | None:
    found = _FIELD.match(text[text.rfind("\n") + 1 :])
    return Form(f"field {found[1].casefold()}") if found else None


def frame_of(text: str) -> frozenset[str]:
    """Return the marks at a reply's edges: the label or tag it begins with, and those of its last three lines."""
    head = _label_lines(text[:EDGE_CHARS])[:1]
    marks = {f"{_HEAD}{label[0].casefold().strip()}" for line in head if (label := _LABEL.match(line))}
    if "\n" in text.strip():
        marks.update(mark for line in _label_lines(text[-EDGE_CHARS:])[-3:] for mark in _tail_marks(line))
    return frozenset(marks)


def _label_lines(text: str) -> list[str]:
    return [line.strip()[:_LABEL_CHARS] for line in text.splitlines() if line.strip()]


def _tail_marks(line: str) -> Iterator[str]:
    if _PROMPT.match(line):
        yield f"tail {line}"
    elif line[0] in "[(<{" and (label := _LABEL.match(line)):
        yield f"tail {label[0].casefold()}"


# flags and tags of client software


_FLAGS = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly")


def without_flags(message: Json) -> Json:
    """The message without the client's own flags, which a provider would refuse."""
    if not any(flag in message for flag in _FLAGS):
        return message
    return {key: one for key, one in message.items() if key not in _FLAGS}


def unwrapped(value: Json) -> Json:
    """Return the message inside a line of a client's transcript, with the client's flags; any other value unchanged."""
    message = value.get("message")
    if "role" in value or not isinstance(message, dict) or "role" not in message:
        return value
    return {**message, **{flag: value[flag] for flag in _FLAGS if flag in value}}


def flagged(message: Mapping[str, object], text: str) -> MessageOrigin | None:
    """Return the origin that a message's flags or tags decide; `None` if they decide nothing."""
    if message.get("isCompactSummary") is True:
        return "summary"
    if any(message.get(key) is True for key in ("isMeta", "isVisibleInTranscriptOnly", "is_demo")):
        return "client"
    return "client" if _is_of_client(text) else None


def _is_of_client(text: str) -> bool:
    """Return True if client software wrote the whole text; the arguments of a command are a person's."""
    at = 0
    while found := _CLIENT_BLOCK.match(text, at):
        if found[1] == "command-args" and found[2].strip():
            return False
        at = found.end()
    if not at:
        return text.strip() in _CLIENT_LINES
    # a notification may end with a line that points at a path in it
    rest = text[at:].strip()
    path = rest.rpartition(" ")[2]
    return not rest or ("\n" not in rest and "/" in path and path in text[:at])


def marked(events: Iterable[Event], message: Mapping[str, object], hearing: Hearing) -> list[Event]:
    """The events of a message, each of the user role with its origin; the hearing hears them."""
    return [_heard(event, message, hearing) for event in events]


def without_origin(event: E) -> E:
    """Return the event in the form recorded before user-role messages had an origin."""
    return msgspec.structs.replace(event, origin="") if isinstance(event, UserMessage) and event.origin else event


def _heard(event: Event, message: Mapping[str, object], hearing: Hearing) -> Event:
    match event:
        case UserMessage(content=content, name=name):
            origin = _origin(content_text(content), name, message, hearing)
            return msgspec.structs.replace(event, origin=origin) if origin else event
        case LlmTextResponse(content=content):
            hearing.responded(content_text(content))
        case SessionStarted(content=content) | ExternalInject(content=content):
            hearing.instructed(content_text(content))
        case LlmThinking():
            pass
        case _:
            hearing.interrupted()
    return event


def _origin(text: str, name: str, message: Mapping[str, object], hearing: Hearing) -> MessageOrigin:
    is_observation = message.get("message_type") == "observation"
    return hearing.said(text, name=name, known=flagged(message, text), is_observation=is_observation)
