"""Memory in four layers: working, episodic, semantic, procedural."""
