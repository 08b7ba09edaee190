"""Playbooks: flows that went well, kept to be followed again."""
