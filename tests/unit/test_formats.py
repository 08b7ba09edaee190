"""Messages of the three formats as events: nothing is lost, nothing invalid is taken, the order stays."""

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from memory_engine.core.chunks import content_text
from memory_engine.core.codec import encode_event
from memory_engine.core.events.base import Event
from memory_engine.events import builtin_registry
from memory_engine.formats.detection import Format
from memory_engine.formats.dialogue import Dialogue
from memory_engine.formats.native import Json, is_equal
from memory_engine.formats.translation import Messages
from tests.provider_messages import (
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


def events_of(messages: Sequence[object], format: Format | None = None) -> list[Event]:
    """The events of messages, as a log gives them back."""
    names = map("r{}".format, range(1_000))
    turns = Messages(messages, format).read(Dialogue(), lambda: next(names))
    return [encode_event(event, REGISTRY)[1] for turn in turns for event in turn.events]


def check_nothing_is_lost(
    messages: list[Json], format: Format, again: Callable[[Sequence[Event]], list[Json]], normal: Callable[[Json], Json]
) -> None:
    """The events make the messages again."""
    made = [normal(message) for message in again(events_of(messages, format))]
    expected = [normal(message) for message in messages]
    assert without_nulls(expected) == without_nulls(made)
    assert is_equal(without_nulls(expected), without_nulls(made))


@given(chat_messages())
def test_chat_completions_come_back(messages: list[Json]) -> None:
    """Whatever a conversation holds, known to us or not."""
    check_nothing_is_lost(messages, "openai.chat", chat_again, chat_normal)


@given(anthropic_messages())
def test_anthropic_messages_come_back(messages: list[Json]) -> None:
    """Block by block, in their order, signed thoughts and sealed ones too."""
    check_nothing_is_lost(messages, "anthropic", anthropic_again, anthropic_normal)


@given(response_items())
def test_responses_items_come_back(messages: list[Json]) -> None:
    """Item by item, with their ids."""
    check_nothing_is_lost(messages, "openai.responses", responses_again, responses_normal)


CONVERSATIONS: tuple[tuple[Format, st.SearchStrategy[list[Json]]], ...] = (
    ("openai.chat", chat_messages()),
    ("anthropic", anthropic_messages()),
    ("openai.responses", response_items()),
)


@given(st.sampled_from(CONVERSATIONS), st.data())
def test_a_format_is_known_by_what_it_alone_says(
    conversation: tuple[Format, st.SearchStrategy[list[Json]]], data: st.DataObject
) -> None:
    """One sign is enough; where there is none, the messages mean the same in all three."""
    messages = data.draw(conversation[1])
    meant, found = (
        [(type(one), content_text(getattr(one, "content", ""))) for one in events_of(messages, known)]
        for known in (conversation[0], None)
    )
    assert meant == found
