"""The command line as tests call it."""

from collections.abc import Callable

Run = Callable[..., tuple[int, str, str]]
"""Called with words; gives the exit code and what was printed on standard output and on standard error."""
