"""How much a model takes at once: what it says of itself, and what its refusals and its counts have taught."""

from attrs import define

MARGIN = 1.1
"""A prompt may be counted too low by this much."""
ANSWER_WINDOW_SHARE = 0.25
"""The share of a window that an answer may take."""
PROMPT_TOKENS_MIN = 256
"""A prompt is never planned below this."""


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
        """The tokens that an answer may take, of those wanted."""
        return min(wanted, int(self.window * ANSWER_WINDOW_SHARE)) if self.window else wanted

    def prompt_tokens(self, most: int, answer: int) -> int:
        """The counted tokens that a prompt may take, at most `most`, beside an answer of so many tokens."""
        if self.window:
            most = min(most, int((self.window - answer) / (MARGIN * self.factor)))
        if self.learned:
            most = min(most, self.learned)
        return max(most, PROMPT_TOKENS_MIN)

    def refused(self, prompt: int) -> None:
        """A prompt of so many counted tokens was too long: from now on half of it is tried."""
        self.learned = max(min(prompt, self.learned or prompt) // 2, PROMPT_TOKENS_MIN)

    def answered(self, prompt: int, reported: int) -> None:
        """The model took a prompt, and reported its tokens (0: it did not)."""
        if prompt and reported:
            self.factor = min(max(self.factor, reported / prompt), 8.0)
