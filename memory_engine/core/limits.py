"""How much of a foreign file is read: bounds that keep a hostile file from taking all memory, or an hour."""

from attrs import fields, frozen

from memory_engine.errors import InvalidDocument


@frozen(kw_only=True)
class ReadingLimits:
    """The bounds within which files are read. Data beyond one is refused by name; the rest is read.

    - `file_bytes`: a file, a message of a mailbox, an unpacked file of an archive
    - `archive_bytes`, `archive_files`: all of an archive that is read, unpacked, and how many files it lists
    - `archive_ratio`: how many times larger than packed an archive of over 64 MiB may be
    - `json_values`: the values of one JSON file, counted by its commas and brackets
    - `markup_tags`: the tags of a page or of a Word file, counted by their `<`
    - `table_cells`: the cells of a CSV file, counted by what parts them
    - `chat_messages`: the messages of one channel
    - `header_chars`: a header of a mail that is read; lists of recipients and references are cut there
    - `mail_parts`, `mail_depth`: the parts of a mail, and how deep they are nested
    - `passages`: the passages of one document
    - `pdf_seconds`, `pdf_bytes`: processor time and memory to read a PDF in

    Each is a whole number from 1 on. Raises `InvalidDocument`.
    """

    file_bytes: int = 50 * 1024 * 1024
    archive_bytes: int = 2 * 1024 * 1024 * 1024
    archive_files: int = 100_000
    archive_ratio: int = 200
    json_values: int = 4_000_000
    markup_tags: int = 2_000_000
    table_cells: int = 4_000_000
    chat_messages: int = 1_000_000
    header_chars: int = 10_000
    mail_parts: int = 1_000
    mail_depth: int = 50
    passages: int = 100_000
    pdf_seconds: int = 120
    pdf_bytes: int = 2 * 1024 * 1024 * 1024

    def __attrs_post_init__(self) -> None:
        for one in fields(ReadingLimits):
            value = getattr(self, one.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidDocument(f"the limit {one.name}", value, "use a whole number from 1 on")


DEFAULT_LIMITS = ReadingLimits()


def json_values(text: bytes | str) -> int:
    """How many values JSON may hold at the most, from its commas and brackets: known before any memory is taken."""
    if isinstance(text, bytes):
        return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")
    return 1 + text.count(",") + text.count("[") + text.count("{")
