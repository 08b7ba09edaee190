"""Requests fit what the SDKs declare: each message is checked at run time by the very types that the SDKs export."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_engine.events import Event
from tests.engine.test_forms_laws import EVENTS, context_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@cache
def adapters() -> "dict[str, TypeAdapter[object]]":
    """The types of the SDKs, which take seconds to import: a process that only collects the tests does without."""
    from anthropic.types import MessageParam, TextBlockParam
    from openai.types.chat import ChatCompletionMessageParam
    from openai.types.responses import ResponseInputItemParam
    from pydantic import TypeAdapter

    return {
        "chat": TypeAdapter(ChatCompletionMessageParam),
        "responses": TypeAdapter(ResponseInputItemParam),
        "anthropic": TypeAdapter(MessageParam),
        "system": TypeAdapter(TextBlockParam),
    }


def check(kind: str, messages: Iterable[object]) -> None:
    """Each of these is what the SDK declares, to its last part."""
    for message in messages:
        through(adapters()[kind].validate_python(message))


def through(value: object) -> None:
    """Pydantic looks at what stands in an `Iterable` when it is asked for."""
    if isinstance(value, Mapping):
        for inner in value.values():
            through(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for inner in value:
            through(inner)


@settings(max_examples=40)
@given(st.lists(EVENTS, max_size=10))
async def test_every_request_fits_the_sdks_types(events: list[Event]) -> None:
    """Whatever was said."""
    context = await context_of(events, None)
    assert context is not None
    check("chat", context.render("openai.chat").messages)
    check("responses", context.render("openai.responses").input)
    request = context.render("anthropic")
    check("anthropic", request.messages)
    check("system", request.system)


def test_what_does_not_fit_is_found() -> None:
    """The check looks into the parts."""
    from pydantic import ValidationError

    with pytest.raises(ValidationError):
        check("anthropic", [{"role": "user", "content": [{"type": "text", "words": "Hi"}]}])
