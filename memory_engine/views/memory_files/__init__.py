"""Memory files: named texts that an agent writes, edits, moves and deletes; every version stays in the log."""
