"""The text of HTML: what a reader would see, a line for each block."""

import re
from html.parser import HTMLParser

_HIDDEN = frozenset({"head", "script", "style", "template", "title"})
_BLOCKS = frozenset(
    "address article aside blockquote br dd div dl dt figure footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol p "
    "pre section table td th tr ul".split()
)
_QUOTES = frozenset({"blockquote"})


def html_text(html: str) -> str:
    """The text, without what is hidden; quoted blocks are marked with `> `, as in a mail of plain text."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    lines = (re.sub(r"[^\S\n]+", " ", line).strip() for line in "".join(parser.parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden: list[str] = []
        self._quoted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden.append(tag)
        self._quoted += tag in _QUOTES
        self._block(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]
        self._quoted = max(0, self._quoted - (tag in _QUOTES))
        self._block(tag)

    def _block(self, tag: str) -> None:
        if tag in _BLOCKS and not self._hidden:
            self.parts.append("\n" + "> " * bool(self._quoted))

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            text = " ".join(data.split("\n"))
            self.parts.append(text)
