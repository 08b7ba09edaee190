"""The sections of a summary: the kind of each line, in the order in which a reader meets them.

`SummaryLine.section` says what a line is, and whose words it holds. A line keeps it through any number of summaries.
"""

from collections.abc import Mapping

SAID = "said"
"""A person's words, under their speaker."""
ASKED = "asked"
"""A person's words that wait for an answer or a deed. Once more has happened they are `said`."""
DECIDED = "decided"
"""The agent's own decisions, answers and final statements."""
FILES = "files"
"""One line a file: path, what was read of it, what was changed."""
COMMANDS = "commands"
"""One line a command or a search, with its last outcome."""
TESTS = "tests"
"""One line a run of tests, with what failed last."""
QUOTED = "quoted"
"""Sentences of files and pages that tools read, each under the name of its source."""

SEED_SECTIONS = ("completed_actions", "attempted_approaches", "current_state", "key_information", "next_steps")
"""The sections of a progress summary as a model is asked for it."""
PEOPLE = frozenset((SAID, ASKED))
"""Sections that hold the words of people, and of no one else."""
WORK = frozenset((FILES, COMMANDS, TESTS))
"""Sections whose lines are records of work: lines about the same thing become one."""
TOLD_BY_TOOLS = frozenset(("completed_actions", "attempted_approaches", FILES, COMMANDS, TESTS, QUOTED))
"""Sections whose words say nothing of the language that people speak."""
SECTION_ORDER = (
    SAID,
    DECIDED,
    "completed_actions",
    FILES,
    COMMANDS,
    TESTS,
    "attempted_approaches",
    "current_state",
    "key_information",
    QUOTED,
    ASKED,
    "next_steps",
)
"""Every known section in reading order."""
SHOWN_UNDER: Mapping[str, str] = {ASKED: "next_steps"}
"""Sections without a heading of their own, and the one whose heading covers their lines."""
