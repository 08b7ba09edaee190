"""The size of a model's window: as the model declares it, and as its refusals and token counts show."""

from attrs import define

MARGIN = 1.1
"""Safety factor: a prompt's estimated tokens may be too low by this much."""
ANSWER_WINDOW_SHARE = 0.25
"""Maximum share of a window for an answer."""
PROMPT_TOKENS_MIN = 256
"""Minimum size of a planned prompt."""


@define
class ModelWindow:
    """The room in a model's window. `window` is what is known of it in the model's own tokens (0: nothing).

    `learned` is the largest prompt to try, in counted tokens, after a refusal (0: none was refused). `factor` is how
    many of the model's tokens a counted one was, at most, by the usage that it reported.
    """

    window: int = 0
    learned: int = 0
    factor: float = 1.0

    def answer_tokens(self, wanted: int) -> int:
        """Return how many of the wanted tokens an answer may take."""
        return min(wanted, int(self.window * ANSWER_WINDOW_SHARE)) if self.window else wanted

    def prompt_tokens(self, most: int, answer: int) -> int:
        """Return the estimated tokens, at most `most`, for a prompt that leaves room for `answer` tokens."""
        if self.window:
            most = min(most, int((self.window - answer) / (MARGIN * self.factor)))
        if self.learned:
            most = min(most, self.learned)
        return max(most, PROMPT_TOKENS_MIN)

    def refused(self, prompt: int) -> None:
        """Record that a prompt of `prompt` estimated tokens was too long: from now on, half of it is tried."""
        self.learned = max(min(prompt, self.learned or prompt) // 2, PROMPT_TOKENS_MIN)

    def answered(self, prompt: int, reported: int) -> None:
        """Record that the model took a prompt, and the tokens it reported for it (0: none reported)."""
        if prompt and reported:
            self.factor = min(max(self.factor, reported / prompt), 8.0)
