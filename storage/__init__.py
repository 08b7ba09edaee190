"""Back ends: in memory, and SQLite."""
