"""What a what-if takes: edits, references, compactions and the log that comes out."""
