"""Screen context: the screen and the results of proactive tools at the beginning of a session."""
