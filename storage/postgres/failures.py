"""Errors of the driver and of the server as the store's own. One table; nothing else looks at codes."""

import enum
import ssl

import asyncpg
import msgspec
from asyncpg import exceptions

from memory_engine.errors import (
    InvalidIdentifier,
    MemoryEngineError,
    ReadOnly,
    SchemaError,
    StorageBusy,
    StorageFailed,
    StorageRefused,
)
from memory_engine.storage.postgres.address import Address


class FailureKind(enum.Enum):
    """The remedy for an error."""

    AWAY = "away"
    """The server cannot be reached now, or the connection is lost: wait, and connect again."""
    AGAIN = "again"
    """The transaction was rolled back because of others: run it again."""
    OTHER = "other"


_AWAY = ("08", "57P01", "57P02", "57P03", "57P04", "57P05", "53300", "25P03")
"""Connection exceptions, a server that starts or stops, too many connections, a session that was ended."""
_AGAIN = ("40001", "40P01")
_LOGIN = ("28",)
_DENIED = "42501"
_NO_DATABASE = "3D000"
_BUSY = ("55P03", "57014")
_FAILING = ("53100", "58")
_NO_SCHEMA = ("3F000", "42P01", "42883", "42703")
_NOT_TEXT = ("22021", "22P05")
_READ_ONLY = "25006"
LOST = (OSError, EOFError, exceptions.InterfaceError, exceptions.InternalClientError)
"""Errors that the driver raises without a connection, after losing one, or after losing count of its statements."""
ERRORS = (
    asyncpg.PostgresError,
    exceptions.InterfaceError,
    exceptions.InternalClientError,
    OSError,
    EOFError,
    ValueError,
)
"""Errors that the driver raises; also `ValueError`, the base of its `DataError`, for values that no column takes."""


def kind_of(error: BaseException) -> FailureKind:
    """The remedy for an error."""
    code = _code(error)
    if code.startswith(_AWAY) or (not code and _is_lost(error)):
        return FailureKind.AWAY
    return FailureKind.AGAIN if code in _AGAIN else FailureKind.OTHER


def _is_lost(error: BaseException) -> bool:
    if isinstance(error, ValueError | ssl.SSLCertVerificationError):  # a value that no column takes, a wrong option
        return False
    return isinstance(error, LOST)


def _code(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "") if isinstance(error, asyncpg.PostgresError) else ""


def is_of_a_statement(error: BaseException) -> bool:
    """Whether the connection that raised it is as good as before once its transaction is rolled back."""
    return isinstance(error, MemoryEngineError) or (
        isinstance(error, asyncpg.PostgresError | ValueError)
        and kind_of(error) is not FailureKind.AWAY
        and _code(error) != _READ_ONLY
    )


def storage_error(address: Address, error: BaseException, waited_s: float = 0.0) -> MemoryEngineError:
    """The store's error for one of the driver's or the server's, `seconds` after the call began."""
    if isinstance(error, MemoryEngineError):
        return error
    shown, code = address.shown, _code(error)
    why = address.redacted(str(error).partition("\n")[0] or type(error).__name__)
    if isinstance(error, UnicodeEncodeError):
        return InvalidIdentifier("a text", ascii(error.object), "it holds a lone surrogate")
    if code in _NOT_TEXT:
        return InvalidIdentifier("a text", "", "it holds a NUL character, and PostgreSQL's text holds none")
    if code.startswith(_BUSY):
        return StorageBusy(shown, waited_s)
    if code == _READ_ONLY:
        role = "the server, or the role, only reads: give the address of the primary (`target_session_attrs=primary`)"
        return StorageFailed(shown, f"{role} ({why})")
    if code == _DENIED:
        return StorageFailed(shown, f"{why}: the role lacks a privilege: docs/how-to/postgresql.md lists the GRANTs")
    if code.startswith(_LOGIN):
        return StorageFailed(shown, f"the server does not let this role in ({why}); check user, password, pg_hba.conf")
    if code == _NO_DATABASE:
        return StorageFailed(shown, f"{why}: make it with `createdb`, or give the name of another in the URL")
    if code.startswith(_FAILING):
        return StorageFailed(shown, why)
    if code in _NO_SCHEMA:
        return SchemaError(shown, f"its schema is not as it should be ({why}); restore it, or give another `schema`")
    if isinstance(error, exceptions.ClientConfigurationError | ssl.SSLError):
        return StorageFailed(shown, f"it cannot be connected to: {why}")
    return StorageRefused(shown, why)


def is_failing(error: MemoryEngineError) -> bool:
    """Whether the server's disk fails: the store writes nothing more until it is opened again."""
    code = _code(error.__cause__) if error.__cause__ is not None else ""
    return isinstance(error, StorageFailed) and code.startswith(_FAILING)


def undecodable(address: Address, error: Exception) -> SchemaError:
    """The error for a row that a query read and nothing can decode."""
    why = f"a row cannot be read ({error}); run `memory-engine verify`, or put a backup back"
    return SchemaError(address.shown, why)


UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError)


def refused_write(what: str) -> ReadOnly:
    """The error for a write to a store that was opened to be read."""
    return ReadOnly(what)
