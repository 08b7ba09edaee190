"""The printed results of a test run: how many passed and failed, which failed, and the last error of each.

The forms are those that test runners share: a line of counts, and a line for each failure.
"""

from collections.abc import Sequence

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.sentences import clean

FAILURES_MAX = 5
"""Maximum number of failures listed by name; the rest are counted."""
ERROR_CHARS_MAX = 160
_COUNTS = regex(
    r"(?i)\b\d+ (?:tests?|examples?|assertions|doctests?|specs?|scenarios?)?\s*"
    r"(?:passed|failed|passing|failing|failures?\b|errors? in)"
    r"|\bRan \d+ tests? in\b|\btest result: |\bTests(?: run)?:\s+\d|\b\d+ (?:tests?|examples?|scenarios?), \d+ "
    r"|^(?:ok|FAIL)\s+\S+\s+(?:\(cached\)|[\d.]+s)|^(?:OK|FAILED) \((?:tests|failures|errors|skipped)"
    r"|^# (?:pass|fail) \d+|\bTest Files\s+\d+|^no tests ran"
)
_OTHER_COUNTS = regex(r"(?i)^(?:FAILED \(.*\)|OK(?: \(.*\))?|FAIL|PASS|BUILD (?:FAILED|SUCCESS\w*))$")
_FAILURE = regex(
    r"^(?:FAILED|ERROR) (?P<a>\S+::\S.*|\S+\.\w+(?: - .*)?)$"
    r"|^(?:FAIL|ERROR): (?P<b>\S.*)$"
    r"|^\s*--- FAIL: (?P<c>\S+)"
    r"|^test (?P<d>\S+) \.\.\. FAILED"
    r"|^\s*● (?P<e>\S.*)$"
    r"|^\s*[✕✗×✖] (?P<f>\S.*)$"
    r"|^\s*\d+\) (?P<g>\S.*)$"
    r"|^not ok \d+ - (?P<h>\S.*)$"
    r"|^\s*FAIL\s+(?P<i>\S.* > \S.*)$"
)
_REASON = regex(
    r"^\s*(?:E\s+)?(?P<why>(?:[\w.]*(?:Error|Exception|AssertionFailed)\b.*)|assert .*|[Ee]xpected\b.*"
    r"|thread '.*' panicked.*|\*\* \(.*|Assertion .*failed.*|code:\s+.*|.*panic: .*)"
)
_TIME = regex(
    r"\s*(?:\bin |\()?\b\d+(?:\.\d+)? ?(?:s|ms|seconds?|m)\b\)?(?:\s*\(\d+:\d\d:\d\d\))?"
    r"|\s*\([\d.]+s async, [\d.]+s sync\)"
)
_FRAME = regex(r"^[\s=\-_*~#]+|[\s=\-_*~#]+$")
_FAILED_COUNT = regex(
    r"(?i)\b[1-9]\d* (?:tests? |examples? )?(?:failed|failing|failures?|errors?)\b"
    r"|(?:failures|errors)[=:]\s*[1-9]|\bFAILED\b|^FAIL\b"
    r"|Failures: [1-9]|Errors: [1-9]"
)


class RunOfTests(msgspec.Struct, frozen=True, gc=False):
    """The counts of a run as it printed them, and each failure with its reason."""

    counts: str
    failures: tuple[str, ...]
    has_failed: bool

    @property
    def outcome(self) -> str:
        """Return the run as a summary line shows it: the counts, then the failures."""
        more = len(self.failures) - FAILURES_MAX
        return "; ".join([self.counts, *self.failures[:FAILURES_MAX], *([f"and {more} more"] if more > 0 else [])])


def run_of_tests(given: Sequence[str]) -> RunOfTests | None:
    """Return the test run that these lines report, `None` if they report none."""
    counts = [line for line in given[-60:] if len(line) < 400 and _COUNTS.search(line.strip(" =\t"))]
    if not counts:
        return None
    shown = _counts(counts[-1])
    ends = [line.strip() for line in given[-4:] if _OTHER_COUNTS.match(line.strip())]
    shown = "; ".join(dict.fromkeys([shown, *map(clean, ends)])) if not _FAILED_COUNT.search(shown) else shown
    failures = _failures(given)
    has_failed = bool(_FAILED_COUNT.search(shown)) or any(map(_FAILED_COUNT.search, counts[-3:]))
    return RunOfTests(shown, failures if has_failed else (), has_failed)


def _counts(line: str) -> str:
    shown = _TIME.sub("", _FRAME.sub("", line))
    return clean(shown.replace(";", ",")).rstrip(" ,.(") or clean(line)


def _failures(given: Sequence[str]) -> tuple[str, ...]:
    """Return each failure once, with the reason on its own line, or else the first one below it."""
    found: dict[str, str] = {}
    last = ""
    reason = ""
    for line in given:
        match = _FAILURE.match(line) if len(line) < 1_000 else None
        if match is not None:
            name, _, why = clean(next(filter(None, match.groups()))).partition(" - ")
            last = name
            found[name] = why or found.get(name, "")
        elif (why_match := _REASON.match(line)) and len(line) < 1_000:
            reason = clean(why_match["why"])
            if last and not found[last]:
                found[last] = reason
    told = [f"{name} - {_short(why)}" if why else name for name, why in found.items()]
    if not told and reason:
        told = [_short(reason)]
    return tuple(one.replace("; ", ", ") for one in told)


def _short(text: str) -> str:
    if len(text) <= ERROR_CHARS_MAX:
        return text
    at = text.rfind(" ", 0, ERROR_CHARS_MAX)
    return f"{text[: at if at > 0 else ERROR_CHARS_MAX]} …"
