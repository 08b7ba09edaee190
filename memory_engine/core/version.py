"""The version that is installed."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "memory-event-engine"
"""The distribution's name; it is imported as `memory_engine`."""


def installed_version() -> str:
    """The version, as its metadata has it; empty in a checkout that is not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return ""
