"""The brief: what people said and still holds, word for word, with what a person or the agent pinned by hand."""
