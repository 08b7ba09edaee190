"""People's words in a conversation, and whether a text that an agent keeps is theirs."""

from collections.abc import Collection, Iterable, Sequence

from attrs import frozen

from memory_engine.core.aside import aside
from memory_engine.core.origins import PEOPLE
from memory_engine.core.state import State
from memory_engine.language.text import common_words, fold_case, is_unspaced, words
from memory_engine.thread import Thread, handle_of
from memory_engine.views.promotion.wording import is_of_a_person

SAID = "said"
"""The section of a summary whose lines hold a person's words."""


@frozen
class People:
    """People's words: a folded text each, with the ids of its events."""

    texts: tuple[str, ...]
    ids: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, said: Iterable[tuple[str, Sequence[str]]]) -> "People":
        """From texts with the ids of their events."""
        pairs = [(fold_case(text), tuple(ids)) for text, ids in said]
        return cls(tuple(text for text, _ in pairs), tuple(ids for _, ids in pairs))

    @property
    def spoke(self) -> bool:
        """Whether any person said anything that is known."""
        return bool(self.texts)

    def repeated(self, text: str) -> tuple[str, ...] | None:
        """The ids of the events in which a person used all the significant words of a text; `None` without any."""
        found = frozenset(words(fold_case(text)))
        telling = found - common_words() or found
        if not telling:
            return None
        return next((ids for said, ids in zip(self.texts, self.ids, strict=True) if _has_all(said, telling)), None)

    def said(self, name: str, value: str, sources: Collection[str]) -> bool:
        """Whether a text under a name is a person's: drawn from their words, repeating them, or about one of them."""
        if any(not set(ids).isdisjoint(sources) for ids in self.ids):
            return True
        return self.repeated(value) is not None or is_of_a_person(f"{name.replace('-', ' ')} {value}")


def _has_all(said: str, telling: Collection[str]) -> bool:
    known = frozenset(words(said))
    return all(word in known or (is_unspaced(word) and word in said) for word in telling)


async def people_in(conversation: Thread) -> People:
    """People's words in a conversation, as far back as its state reaches."""
    state = await conversation.state()
    said = await aside(lambda: _spoken_texts(state), items=len(state))
    seqs = sorted({seq for _, seq in said})
    rows = await handle_of(conversation).kernel.reader.rows_at(conversation.id, seqs)
    return People.of((text, [rows[seq].id] if seq in rows else []) for text, seq in said)


def _spoken_texts(state: State) -> list[tuple[str, int]]:
    """The messages of people, and the lines of summaries that hold their words, with the seqs of their events."""
    chunks = list(state.everything())
    lines = [(line.text, chunk.seq) for chunk in chunks for line in chunk.lines if line.section == SAID]
    return [*((chunk.text, chunk.said_at) for chunk in chunks if chunk.type in PEOPLE), *lines]
