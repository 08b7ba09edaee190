"""Preferences: values and rules of a user, declared by a domain, found by flow, by likeness and by relation."""
