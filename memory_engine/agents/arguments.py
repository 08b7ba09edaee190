"""The tools of an agent's memory: their names and purposes for models, and their arguments."""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from memory_engine.views.layers.events import Layer

EntryText = Annotated[str, Meta(min_length=1, max_length=100_000)]
SnippetText = Annotated[str, Meta(min_length=1, max_length=4_000)]
"""The scratchpad is in every context, whole: one long snippet would leave no room for the conversation."""
PinText = Annotated[str, Meta(min_length=1, max_length=1_500)]
KeyName = Annotated[str, Meta(min_length=1, max_length=1_000)]
Limit = Annotated[int, Meta(ge=1, le=50)]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: `tool` is the name that models call, `purpose` its description for them."""

    tool: ClassVar[str] = ""
    purpose: ClassVar[str] = ""


class Append(Arguments, frozen=True):
    """Add an entry."""

    tool = "memory_append"
    purpose = (
        "Remember something. Layers: working = notes for the task at hand (the last 50 stay); "
        "episodic = what was done and what came of it; procedural = a rule, with its condition. "
        "For a fact under a name use memory_learn."
    )
    layer: Annotated[Literal["working", "episodic", "procedural"], Meta(description="Which layer takes the entry.")]
    content: Annotated[EntryText, Meta(description="What to remember, in a sentence or a few. Of a rule: what to do.")]
    condition: Annotated[
        str | None, Meta(description="Procedural only: when the rule applies, such as 'a deployment fails'.")
    ] = None


class Search(Arguments, frozen=True):
    """Find entries."""

    tool = "memory_search"
    purpose = (
        "Find what was remembered. Give a query for the entries that fit it best, or last for the latest ones "
        "(to look back over your last steps)."
    )
    query: Annotated[str | None, Meta(description="Words to look for. Leave out to get the latest entries.")] = None
    layer: Annotated[Layer | None, Meta(description="Where to look. Leave out to look in all layers.")] = None
    limit: Annotated[Limit | None, Meta(description="How many entries to return at most. Default 10.")] = None
    last: Annotated[Limit | None, Meta(description="Instead of a query: the latest so many entries, in order.")] = None


class Learn(Arguments, frozen=True):
    """Keep a fact."""

    tool = "memory_learn"
    purpose = "Keep a fact under a key. What was known under the key is replaced."
    key: Annotated[KeyName, Meta(description="Names the thing, such as 'dataset-format'. Use the same key every time.")]
    value: Annotated[
        EntryText, Meta(description="What is true of it, such as 'CSV with headers, semicolon-delimited'.")
    ]


class RecallFact(Arguments, frozen=True):
    """Look a fact up."""

    tool = "memory_recall"
    purpose = "Look up the fact under a key. If you do not know the key, use memory_search with layer semantic."
    key: Annotated[KeyName, Meta(description="The key that the fact was learned under.")]


class Compact(Arguments, frozen=True):
    """Make room."""

    tool = "memory_compact"
    purpose = (
        "Replace older entries of a layer by a summary; the last ones stay as they are. "
        "What is covered can still be read with memory_open."
    )
    layer: Annotated[Literal["working", "episodic", "procedural"], Meta(description="Which layer to compact.")]
    keep_last: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)] | None, Meta(description="How many of the latest stay. Default 10.")
    ] = None


class CompactContext(Arguments, frozen=True):
    """Make room in the conversation."""

    tool = "context_compact"
    purpose = (
        "Replace the older steps of this conversation by a summary, to make room for what comes. Call it when a part "
        "of the work is done, before you begin another. What people said, open calls and to-dos stay as they are."
    )
    focus: Annotated[
        Annotated[str, Meta(max_length=2_000)] | None,
        Meta(description="What the summary should go into most, such as 'the failing test and what was tried'."),
    ] = None


class Stats(Arguments, frozen=True):
    """Say how much there is."""

    tool = "memory_stats"
    purpose = "How much is remembered in each layer."


class Clear(Arguments, frozen=True):
    """Empty a layer."""

    tool = "memory_clear"
    purpose = "Empty a layer of memory. This takes everything in it away; do it only if you were told to."
    layer: Annotated[Layer, Meta(description="Which layer to empty.")]
    confirm: Annotated[bool, Meta(description="Must be true, to show that this is meant.")]


class Open(Arguments, frozen=True):
    """Read on."""

    tool = "memory_open"
    purpose = (
        'Read what a reference stands for: the rest of a long result (such as open("12.0") in a message), '
        "or the entries behind a summary, by its id."
    )
    reference: Annotated[
        KeyName, Meta(description="The reference or id, as it stands in the message or search result.")
    ]
    start: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="Of a long result: the character to begin at. Default 0.")
    ] = None


class ScratchpadWrite(Arguments, frozen=True):
    """Write a snippet."""

    tool = "scratchpad_write"
    purpose = "Note a finding on the scratchpad, which stays in view. The 64 used last are kept."
    text: Annotated[SnippetText, Meta(description="What you found out, in a sentence or a few.")]


class ScratchpadRead(Arguments, frozen=True):
    """Read the snippets."""

    tool = "scratchpad_read"
    purpose = "Read what is on the scratchpad."


class BriefPin(Arguments, frozen=True):
    """Keep a text for the task."""

    tool = "brief_pin"
    purpose = (
        "Remember this for the task: keep a decision or condition word for word in front of you, whatever becomes of "
        "the history. What people say is kept anyway. There is room for a few: take out what no longer holds."
    )
    text: Annotated[PinText, Meta(description="What to keep, in a sentence or two.")]


class BriefUnpin(Arguments, frozen=True):
    """Take a pin out."""

    tool = "brief_unpin"
    purpose = "Take out what you kept with brief_pin."
    pin: Annotated[Annotated[int, Meta(ge=1)], Meta(description="Its number, as brief_pin and brief_read give it.")]


class BriefRead(Arguments, frozen=True):
    """Read what people said."""

    tool = "brief_read"
    purpose = "Read what people said in this conversation and what of it still stands, and what is pinned."


ARGUMENTS: tuple[type[Arguments], ...] = (
    Append, Search, Learn, RecallFact, Compact, Stats, Clear, Open, ScratchpadWrite, ScratchpadRead, CompactContext,
    BriefPin, BriefUnpin, BriefRead,
)  # fmt: skip
"""Every tool, in the order that models see them."""
