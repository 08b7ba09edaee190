"""How much a conversation's memory holds before it makes room."""

from attrs import Attribute, field, frozen

BYTES_MIN = 64
"""Below this a text could not even say that something was left out."""


def _positive(_limits: object, attribute: "Attribute[int] | Attribute[float]", value: float) -> None:
    if value <= 0:
        raise ValueError(f"{attribute.name} must be above 0, got {value}")


def _bytes(_limits: object, attribute: "Attribute[int]", value: int) -> None:
    if value < BYTES_MIN:
        raise ValueError(f"{attribute.name} must be at least {BYTES_MIN} bytes, got {value}")


@frozen(kw_only=True)
class ConversationLimits:
    """Sizes are bytes of UTF-8.

    Above `exchanges` the oldest exchange folds into the summary. An answer over `answer_bytes_max`
    gets a short form of at most `answer_bytes_target`; a summary that would pass
    `summary_bytes_max` is compressed to at most `summary_bytes_target`. Once the scratchpad holds
    `scratchpad_snippets_max` snippets that no summary has used yet, the summary takes them up, and all
    exchanges but the newest `exchanges_kept` with them. A model has `model_timeout_s` for each text; of
    one that is longer than `model_input_bytes_max` it gets head and tail.
    """

    exchanges: int = field(default=10, validator=_positive)
    exchanges_kept: int = field(default=5, validator=_positive)
    answer_bytes_max: int = field(default=750, validator=_bytes)
    answer_bytes_target: int = field(default=500, validator=_bytes)
    summary_bytes_max: int = field(default=4000, validator=_bytes)
    summary_bytes_target: int = field(default=3000, validator=_bytes)
    scratchpad_snippets_max: int = field(default=48, validator=_positive)
    model_timeout_s: float = field(default=30.0, validator=_positive)
    model_input_bytes_max: int = field(default=48_000, validator=_bytes)

    def __attrs_post_init__(self) -> None:
        for target, most in (
            ("answer_bytes_target", "answer_bytes_max"),
            ("summary_bytes_target", "summary_bytes_max"),
            ("exchanges_kept", "exchanges"),
        ):
            if getattr(self, target) > getattr(self, most):
                raise ValueError(f"{target} is {getattr(self, target)}, above {most}, {getattr(self, most)}")
