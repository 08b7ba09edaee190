"""Search: passages, lexical and vector candidates, their fusion and their order."""
