"""Adapters: other frameworks' agents get this memory by one import and one line. Each needs the extra of its name."""
