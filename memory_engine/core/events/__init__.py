"""The engine's own events, a file for each family, and the registry that decodes them."""
