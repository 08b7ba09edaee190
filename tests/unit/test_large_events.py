"""Large events: the bytes of a payload do not depend on how it was encoded."""

from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_engine import Event, UserMessage, event
from memory_engine.core.codec import LARGE_CHARS, chars_of, commitment, encode_event
from memory_engine.core.events.base import FilePart, ImagePart, TextPart
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.large_events import LONG_CHARS, PIECE_CHARS, split_event
from memory_engine.core.tokens import recorded_tokens
from memory_engine.errors import InvalidEvent
from memory_engine.events import BUILTIN_EVENTS

SIGNS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def long(signs: str, chars: int = LARGE_CHARS + 1) -> str:
    """A long text of these signs."""
    return (signs * (chars // len(signs) + 1))[:chars]


@pytest.fixture(scope="module")
def registry() -> EventRegistry:
    """Every built-in event."""
    return EventRegistry(BUILTIN_EVENTS)


@given(signs=SIGNS, other=SIGNS, small=SIGNS)
def test_the_payload_is_that_of_encoding_it_at_once(
    registry: EventRegistry, signs: str, other: str, small: str
) -> None:
    """Texts in fields and in parts, of any signs, quotes and control characters among them."""
    parts = (
        TextPart(text=long(signs)),
        ImagePart(url=f"data:image/png;base64,{long('QUJD', PIECE_CHARS)}", alt=small),
        TextPart(text=small),
        FilePart(text=long(other, LONG_CHARS + 7), name=small),
    )
    for one in (UserMessage(content=long(signs)), UserMessage(content=parts)):
        payload, recorded = encode_event(one, registry)
        split = split_event(one, registry)

        assert split is not None
        encoded = split.encoded(b"salt")
        assert payload == encoded.payload
        assert recorded == split.recorded
        assert commitment(b"salt", payload) == encoded.commitment
        assert recorded_tokens(split.texts[0]) == encoded.measured.tokens(split.texts[0])


def test_only_much_text_makes_an_event_large() -> None:
    """In its fields, its parts and its calls."""
    assert LARGE_CHARS == chars_of(UserMessage(content="x" * LARGE_CHARS))
    parts = tuple(TextPart(text="x" * 1_000) for _ in range(LARGE_CHARS // 1_000 + 1))
    assert LARGE_CHARS < chars_of(UserMessage(content=parts))


def test_many_short_texts_are_encoded_at_once(registry: EventRegistry) -> None:
    """There is nothing to encode apart from the rest."""
    parts = tuple(TextPart(text="x" * 1_000) for _ in range(LARGE_CHARS // 1_000 + 1))
    assert split_event(UserMessage(content=parts), registry) is None


def test_a_lone_surrogate_in_a_long_text_is_refused(registry: EventRegistry) -> None:
    """As in a short one."""
    split = split_event(UserMessage(content=long("word ") + "\ud800"), registry)

    assert split is not None
    with pytest.raises(InvalidEvent, match="surrogate"):
        split.encoded(b"")


@event("tests.limited", chunks="none")
class Limited(Event):
    """Its schema looks at the text."""

    note: Annotated[str, msgspec.Meta(max_length=10)]


@event("tests.looked_at", chunks="none")
class LookedAt(Event):
    """Its class looks at the text."""

    note: str

    def __post_init__(self) -> None:
        if not self.note:
            raise ValueError("a note says something")


@pytest.mark.parametrize("cls", [Limited, LookedAt])
def test_an_event_that_looks_at_its_texts_is_encoded_at_once(cls: type[Limited] | type[LookedAt]) -> None:
    """A stand-in would be another text to it."""
    assert split_event(cls(note=long("word ")), EventRegistry([cls])) is None
