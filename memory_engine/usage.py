"""What model calls took."""

import msgspec


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens that a model call took, as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def plus(self, other: "Usage") -> "Usage":
        """Both together."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
        )
