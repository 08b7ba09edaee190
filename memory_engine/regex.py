"""Regular expressions that compile at their first use: importing the hundred there are would take 30 ms."""

import re
from typing import AnyStr, Generic, cast


class Uncompiled(Generic[AnyStr]):
    """Stands for a pattern. What is asked of it once is kept, so that asking again costs an attribute."""

    def __init__(self, pattern: AnyStr, flags: re.RegexFlag) -> None:
        self.source: tuple[AnyStr, re.RegexFlag] = pattern, flags

    def __getattr__(self, name: str) -> object:
        found: object = getattr(re.compile(*self.source), name)
        setattr(self, name, found)
        return found


def regex(pattern: AnyStr, flags: re.RegexFlag = re.RegexFlag.NOFLAG) -> re.Pattern[AnyStr]:
    """Return what `re.compile` does, for a name of a module: a pattern whose mistakes only its first use finds."""
    return cast(re.Pattern[AnyStr], Uncompiled(pattern, flags))
