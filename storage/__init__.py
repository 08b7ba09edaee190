"""Back ends: SQLite (a file, or in memory) and PostgreSQL; the indexes of vectors."""
