"""Lines as the Markdown summary that stands in the context."""

from collections.abc import Sequence

from memory_engine.compactors.extractive.entries import CHARS_PER_TOKEN, SECTIONS, Line, Section

TITLE = "## Progress Summary"
HEADINGS: dict[Section, str] = {
    "completed_actions": "### Completed Actions",
    "attempted_approaches": "### Attempted Approaches",
    "current_state": "### Current State",
    "key_information": "### Key Information",
    "next_steps": "### Next Steps",
}
HEADING_TOKENS = (len(TITLE) + 1 + sum(len(heading) + 3 for heading in HEADINGS.values())) / CHARS_PER_TOKEN
"""What title and headings cost at most, beside the lines."""


def render(lines: Sequence[Line], *, cite: bool = False) -> str:
    """The summary as Markdown, ending in a newline; sections without lines are left out, "" for no lines.

    With `cite`, each line ends in the ids it came from: ` [id, id]`.
    """
    if not lines:
        return ""
    parts = [f"{TITLE}\n"]
    for section in SECTIONS:
        body = [_bullet(line, cite) for line in lines if line.section == section]
        if body:
            parts.append(f"\n{HEADINGS[section]}\n\n{''.join(body)}")
    return "".join(parts)


def _bullet(line: Line, cite: bool) -> str:
    return f"- {line.text} [{', '.join(line.sources)}]\n" if cite else f"- {line.text}\n"
