"""JSON values as Python source that reads well, comes back exactly, and that no formatter changes.

Every element of a list or an object has a line of its own. Long texts, and those of several lines, stand before the
rest as constants between triple quotes; equal ones stand once.
"""

from collections.abc import Iterable, Mapping, Sequence

from attrs import define, field

LONG_CHARS = 60
"""A text of more characters becomes a constant."""
LINE_CHARS = 100
"""A line of a constant is cut after so many."""
_INDENT = "    "
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@define
class Constants:
    """Texts that stand before the rest, by value, in the order in which they were met."""

    _names: dict[str, str] = field(factory=dict)

    def name_of(self, text: str) -> str:
        """The name of a text's constant."""
        return self._names.setdefault(text, f"TEXT_{len(self._names) + 1}")

    def source(self) -> str:
        """All of them, a blank line after each."""
        return "".join(f"{name} = {block(text)}\n\n" for text, name in self._names.items())


def literal(value: object, constants: Constants, depth: int = 0) -> str:
    """A JSON value as an expression whose further lines are indented for `depth`."""
    match value:
        case str():
            return constants.name_of(value) if is_long(value) else quoted(value)
        case float():
            return repr(value).replace("e+", "e")
        case None | bool() | int():
            return repr(value)
        case Mapping():
            pairs = (f"{quoted(str(k))}: {literal(one, constants, depth + 1)}" for k, one in value.items())
            return _opened("{", pairs, "}", depth)
        case Sequence():
            return _opened("[", (literal(one, constants, depth + 1) for one in value), "]", depth)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _opened(begin: str, parts: Iterable[str], end: str, depth: int) -> str:
    inner = _INDENT * (depth + 1)
    lines = [f"{inner}{part},\n" for part in parts]
    return f"{begin}\n{''.join(lines)}{_INDENT * depth}{end}" if lines else begin + end


def is_long(text: str) -> bool:
    """Whether a text stands as a constant."""
    return len(text) > LONG_CHARS or "\n" in text.rstrip("\n")


def quoted(text: str) -> str:
    """A text on one line, in the quotes that need fewer escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return quote + _escaped(text).replace(quote, "\\" + quote) + quote


def block(text: str) -> str:
    """A text between triple quotes, its lines as they are, long ones cut: what is cut ends with a backslash."""
    lines = [_line(line) for line in text.split("\n")]
    body = "\n".join(lines)
    body = body[:-1] + '\\"' if body.endswith('"') else body
    body = body.replace('"""', '""\\"')
    return f'"""\\\n{body}"""'


def _line(line: str) -> str:
    return "\\\n".join(map(_visible_end, _cut(line)))


def _cut(line: str) -> list[str]:
    """Pieces of a line, cut before a blank where there is one."""
    pieces: list[str] = []
    at = 0
    while len(line) - at > LINE_CHARS:
        end = line.rfind(" ", at + LINE_CHARS // 2, at + LINE_CHARS)
        end = end if end > 0 else at + LINE_CHARS
        pieces.append(line[at:end])
        at = end
    return [*pieces, line[at:]]


def _visible_end(piece: str) -> str:
    """Escaped; a blank at the end of a line is written out, since editors take it away."""
    escaped = _escaped(piece)
    return escaped[:-1] + "\\x20" if escaped.endswith(" ") else escaped


def _escaped(text: str) -> str:
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(map(_escape, text))


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
