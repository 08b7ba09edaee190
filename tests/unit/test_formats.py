"""Messages of the three formats as events: nothing is lost, nothing invalid is taken, the order stays."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from memory_engine import errors
from memory_engine.core.chunks import content_text
from memory_engine.core.codec import encode_event
from memory_engine.core.events.base import Event
from memory_engine.events import builtin_registry
from memory_engine.formats.detection import Format, checked
from memory_engine.formats.dialogue import Dialogue
from memory_engine.formats.native import Json, is_equal
from memory_engine.formats.providers import PROVIDERS
from memory_engine.formats.streams import Assembly
from memory_engine.formats.translation import Messages, interrupted
from memory_engine.formats.values import as_object
from tests.engine.test_recording import STREAMS
from tests.provider_messages import (
    VALUES,
    anthropic_again,
    anthropic_messages,
    anthropic_normal,
    chat_again,
    chat_messages,
    chat_normal,
    response_items,
    responses_again,
    responses_normal,
    without_nulls,
)

REGISTRY = builtin_registry()
LAW = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
Again = Callable[[Sequence[Event]], list[Json]]
Normal = Callable[[Json], Json]


def events_of(messages: Sequence[object], format: Format | None = None) -> list[Event]:
    """The events of messages, as a log gives them back."""
    names = map("r{}".format, range(1_000))
    turns = Messages(messages, format).read(Dialogue(), lambda: next(names))
    return [encode_event(event, REGISTRY)[1] for turn in turns for event in turn.events]


def check_nothing_is_lost(messages: list[Json], format: Format, again: Again, normal: Normal) -> None:
    """The events make the messages again."""
    made = [normal(message) for message in again(events_of(messages, format))]
    expected = [normal(message) for message in messages]
    assert without_nulls(expected) == without_nulls(made)
    assert is_equal(without_nulls(expected), without_nulls(made))


@LAW
@given(chat_messages())
def test_chat_completions_come_back(messages: list[Json]) -> None:
    """Whatever a conversation holds, known to us or not."""
    check_nothing_is_lost(messages, "openai.chat", chat_again, chat_normal)


@LAW
@given(anthropic_messages())
def test_anthropic_messages_come_back(messages: list[Json]) -> None:
    """Block by block, in their order, signed thoughts and sealed ones too."""
    check_nothing_is_lost(messages, "anthropic", anthropic_again, anthropic_normal)


@LAW
@given(response_items())
def test_responses_items_come_back(messages: list[Json]) -> None:
    """Item by item, with their ids."""
    check_nothing_is_lost(messages, "openai.responses", responses_again, responses_normal)


CONVERSATIONS: tuple[tuple[Format, st.SearchStrategy[list[Json]], Again, Normal], ...] = (
    ("openai.chat", chat_messages(), chat_again, chat_normal),
    ("anthropic", anthropic_messages(), anthropic_again, anthropic_normal),
    ("openai.responses", response_items(), responses_again, responses_normal),
)
SOME = st.integers(0, len(CONVERSATIONS) - 1)


@LAW
@given(SOME, st.data())
def test_a_format_is_known_by_what_it_alone_says(which: int, data: st.DataObject) -> None:
    """One sign is enough; where there is none, the messages mean the same in all three."""
    format_of, conversations, _, _ = CONVERSATIONS[which]
    messages = data.draw(conversations)
    meant, found = (
        [(type(one), content_text(getattr(one, "content", ""))) for one in events_of(messages, known)]
        for known in (format_of, None)
    )
    assert meant == found


# what is broken


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths to everything in a value."""
    yield path
    if isinstance(value, dict):
        for key, one in value.items():
            yield from places(one, (*path, key))
    elif isinstance(value, list):
        for n, one in enumerate(value):
            yield from places(one, (*path, n))


def broken(whole: Sequence[object], data: st.DataObject) -> list[object]:
    """The same, with another value at some place."""
    copied: list[object] = copy.deepcopy(list(whole))
    path = data.draw(st.sampled_from(list(places(copied))[1:]))
    value = data.draw(VALUES)
    assume(path[-1] != "arguments" or isinstance(value, str))  # arguments may be given as an object, or left out
    inside: Any = copied
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    return copied


@LAW
@given(SOME, st.data())
def test_what_is_not_refused_is_not_lost(which: int, data: st.DataObject) -> None:
    """Whatever stands in place of a part of a message: a typed error, or all of it comes back."""
    format_of, conversations, again, normal = CONVERSATIONS[which]
    messages = broken(data.draw(conversations), data)
    try:
        events = events_of(messages, format_of)
    except errors.InvalidInput:
        return
    made = [normal(message) for message in again(events)]
    expected = [normal(as_object(message, "a message", "$")) for message in messages]
    assert is_equal(without_nulls(expected), without_nulls(made))


@LAW
@given(st.sampled_from(sorted(STREAMS)), st.data())
def test_a_broken_stream_raises_nothing_else(name: str, data: st.DataObject) -> None:
    """Each chunk is taken or refused by name, and what has come can be read at any time."""
    known = checked(name)
    assert known is not None
    assembly: Assembly = PROVIDERS[known].ASSEMBLY()
    for chunk in broken(STREAMS[name][0], data):
        with suppress(errors.InvalidMessage):
            assembly.feed(as_object(chunk, "a chunk", "$"))
        assert isinstance(assembly.text, str)
    with suppress(errors.InvalidMessage):
        interrupted(known, *assembly.so_far(), "gone", "r1")
