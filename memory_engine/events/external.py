"""What comes from outside the conversation."""

from typing import Literal

from memory_engine.events.base import Content, Event, event


@event("external_inject")
class ExternalInject(Event):
    """Content put into the thread by the application. `source` says from where."""

    content: Content
    source: str = ""
    retention: Literal["critical", "compressible", "batch_compressible", "disposable", "ephemeral"] = (
        "batch_compressible"
    )


@event("external_timer")
class ExternalTimer(Event):
    """A timer went off."""

    content: str = ""
    timer_id: str = ""


@event("environment_change")
class EnvironmentChange(Event):
    """The world around the agent changed. A later change under the same `key` replaces it."""

    content: Content
    key: str = ""
