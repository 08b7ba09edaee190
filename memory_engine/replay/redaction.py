"""Redaction: what an exported log is not to tell."""

import re
from collections.abc import Sequence

from attrs import Attribute, field, frozen

from memory_engine.errors import InvalidRedaction
from memory_engine.replay.files.log_file import Redacted

STAND_IN = "[redacted]"
"""What stands in the place of a text, whatever its length."""


def _names(value: Sequence[str] | str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidRedaction(value, "give a list, also of one")
    return tuple(value)


def _numbers(value: Sequence[int]) -> tuple[int, ...]:
    return tuple(value)


def _check_names(_rules: object, attribute: "Attribute[tuple[str, ...]]", value: tuple[str, ...]) -> None:
    for name in value:
        if not name.strip("."):
            raise InvalidRedaction(name, f"in `{attribute.name}` stands the name of nothing")


def _check_patterns(_rules: object, _attribute: "Attribute[tuple[str, ...]]", value: tuple[str, ...]) -> None:
    for pattern in value:
        try:
            found = re.compile(pattern).search("")
        except re.error as error:
            raise InvalidRedaction(pattern, f"it is no regular expression: {error}") from None
        if found is not None:
            raise InvalidRedaction(pattern, "it matches where there is nothing")


@frozen(kw_only=True)
class Redaction:
    """What is taken out of an export; in its place stands `[redacted]`. A rule takes out more, never less.

    * `fields`: the texts and numbers in fields of payloads, by name (`"content"`) or by path (`"metadata.email"`)
    * `types`: all texts of events of these types
    * `seqs`: all texts of these events
    * `forgotten`: all texts of what was forgotten (`Thread.forget`), on by default
    * `patterns`: what these regular expressions match, in any text of any event

    What says that it repeats a redacted event goes with it: later versions of its chunks, lines of summaries that cite
    it, entries of views that name it as their source. What repeats it in other words, or without saying so, is reached
    by patterns only. Numbers in fields of their own stay unless the field is named. Raises `InvalidRedaction`.
    """

    fields: tuple[str, ...] = field(default=(), converter=_names, validator=_check_names)
    types: tuple[str, ...] = field(default=(), converter=_names, validator=_check_names)
    patterns: tuple[str, ...] = field(default=(), converter=_names, validator=_check_patterns)
    seqs: tuple[int, ...] = field(default=(), converter=_numbers)
    forgotten: bool = True

    def told(self) -> Redacted:
        """What the file says of it: neither patterns nor places, which may tell what they were to hide."""
        return Redacted(
            fields=self.fields,
            types=self.types,
            patterns=len(self.patterns),
            seqs=len(self.seqs),
            forgotten=self.forgotten,
        )
