"""Events in a few words, as lists show them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_engine import Event
from memory_engine import events as e
from memory_engine.core.excerpts import columns, of_event, shortened
from memory_engine.views.items.events import ItemName, ItemUse
from memory_engine.views.sessions.events import SharedState

SHARED = SharedState(e.Destination("user", "u1"), "shop", '{"n":1}', "t")


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (e.ItemPut(namespace=("ann", "facts"), key="cat", value={"text": "Tom"}), 'ann/facts/cat: {"text": "Tom"}'),
        (e.ItemsDeleted(items=(ItemName(("ann",), "cat"),), reason="old"), "ann/cat (old)"),
        (e.ItemsUsed(items=(ItemUse(("ann",), "cat", 1, 0),)), "ann/cat"),
        (e.SessionItemAdded(head='{"content":"', tail='"}', back=-1, is_cut=True), '{"content":"…"}'),
        (e.SessionItemAdded(head='{"content":"x"}'), '{"content":"x"}'),
        (e.SessionBegun(timestamp=1.5, state='{"n":1}'), 'state {"n":1}'),
        (e.SessionEntryKept(id="1", entry="{}", timestamp=1, messages=2), "the 2 events before it"),
        (
            e.SessionEntryKept(id="1", entry='{"a":1}', timestamp=1, state='{"n":1}', shared=(SHARED,)),
            """{"a":1}, state {"n":1}, user's state {"n":1}""",
        ),
        (e.SharedStateSet(app="shop", state='{"n":1}'), 'shop: {"n":1}'),
        (e.MemoryFileWritten(path="ann.md", content="Ann likes tea.", file_id="f"), "ann.md: Ann likes tea."),
        (e.MemoryAppended(layer="semantic", content="Java 21", key="jdk"), "jdk: Java 21"),
        (e.FactsDelivered(facts=("0000000007.0",)), 'facts ["0000000007.0"]'),
    ],
)
def test_a_line_of_a_list_tells_what_an_event_is_about(told: Event, line: str) -> None:
    """Also one whose fields are made for programs."""
    assert line == of_event(told)


@given(st.text(st.sampled_from("ab \t\u0301é漢字…\u200d🙂\u00ad"), max_size=14), st.integers(1, 12))
def test_a_text_is_cut_to_its_columns(text: str, width: int) -> None:
    """As much of it as fits with the ellipsis, whatever the widths of its characters; all of it where that fits."""
    shown = shortened(text, width)
    if columns(text) <= width:
        assert text == shown
    else:
        kept = shown.removesuffix("…")
        assert text.startswith(kept)
        assert columns(kept) < width < columns(text[: len(kept) + 1]) + 1
