"""The brief: the statements of people that still apply, quoted word for word, and the pins."""
