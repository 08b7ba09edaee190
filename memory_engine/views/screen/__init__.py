"""Screen context: what proactive tools say at the beginning of a session."""
