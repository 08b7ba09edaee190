"""The loggers of the library write no secrets: neither in messages nor in the errors that they show."""

import logging

from memory_engine.language.masking import mapped, without_secrets

LOGGERS = (
    "memory_engine",
    "memory_engine.brief",
    "memory_engine.compaction",
    "memory_engine.conversation",
    "memory_engine.inspector",
    "memory_engine.integrations.langgraph",
    "memory_engine.llm",
    "memory_engine.projections",
    "memory_engine.rebuild",
    "memory_engine.recall",
    "memory_engine.relay",
    "memory_engine.report",
    "memory_engine.retention",
    "memory_engine.runtime.messages",
    "memory_engine.storage",
    "memory_engine.tool_cache",
)
"""Every logger of the library: a filter on one does not see the records of those below it."""


class _WithoutSecrets(logging.Filter):
    """Masks a record in place, and never drops one."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        safe = without_secrets(said)
        if safe != said:
            record.msg, record.args = safe, ()
        if record.exc_info and record.exc_info[1] is not None:
            shown = _FORMATTER.formatException(record.exc_info)
            safe = without_secrets(shown)
            if safe != shown:
                record.exc_text, record.exc_info = safe, None
        for name in vars(record).keys() - _OWN:
            setattr(record, name, mapped(getattr(record, name), without_secrets))
        return True


_OWN = frozenset(vars(logging.makeLogRecord({})))
"""The attributes that every record has; the others are data for log collectors."""
_FORMATTER = logging.Formatter()
_FILTER = _WithoutSecrets()


def mask_logs() -> None:
    """Have all loggers of the library mask secrets. Calling it again changes nothing."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
