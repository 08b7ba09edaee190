"""The key of an encrypted store: in your form, and in SQLCipher's. Nothing here shows it."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import NoReturn

from memory_engine.core.lazy import regex
from memory_engine.errors import InvalidArgument, InvalidKey

Secret = str | bytes
KeySource = Secret | Callable[[], Secret | Awaitable[Secret]]
"""A key, or a function that returns one, or a coroutine of one: from a key server, say."""

ROUNDS = 256_000
"""Rounds of PBKDF2 with SHA-512 that make a key of a passphrase: SQLCipher 4's own, so that its tools open the file."""
KEY_BYTES = 32
_LITERAL = regex(rf"x'([0-9a-fA-F]{{{2 * KEY_BYTES}}})'")


class Key:
    """The key of a store. A text is a passphrase; 32 bytes, or a text that writes them as `x'…'`, are the key itself.

    A passphrase is stretched once for each salt, which takes some tenths of a second: every connection gets the result.
    """

    __slots__ = ("_made", "_secret")

    def __init__(self, secret: Secret) -> None:
        """Raises `InvalidKey`, which does not repeat what was given."""
        self._secret = _checked_secret(secret)
        self._made: dict[bytes, bytes] = {}

    def __repr__(self) -> str:
        return "Key(…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not pickled: give it to each process")

    def literal(self, salt: bytes) -> str:
        """The key of a file with this salt, as SQLCipher takes it. May take some tenths of a second."""
        key = self._secret if isinstance(self._secret, bytes) else self._made.get(salt)
        if key is None:
            assert isinstance(self._secret, str)
            key = self._made[salt] = hashlib.pbkdf2_hmac("sha512", self._secret.encode(), salt, ROUNDS, KEY_BYTES)
        return f"x'{key.hex()}{salt.hex()}'"


def _checked_secret(secret: object) -> Secret:
    match secret:
        case bytes() if len(secret) == KEY_BYTES:
            return secret
        case bytes():
            raise InvalidKey(f"a key of bytes has exactly {KEY_BYTES} of them; a passphrase is a text")
        case "":
            raise InvalidKey("it is empty")
        case str() if secret.startswith("x'"):
            found = _LITERAL.fullmatch(secret)
            if found is None:
                raise InvalidKey(f"a key written as x'…' has {2 * KEY_BYTES} hexadecimal digits between the quotes")
            return bytes.fromhex(found[1])
        case str():
            try:
                secret.encode()
            except UnicodeEncodeError:
                raise InvalidKey("it holds a lone surrogate") from None
            return secret
        case _:
            raise InvalidKey(f"it is of type {type(secret).__name__}: give a text, or {KEY_BYTES} bytes")


def as_key(secret: Secret | None) -> Key | None:
    """The key of a text or bytes. Raises `InvalidKey`."""
    return None if secret is None else Key(secret)


async def other_key(source: KeySource | None, *, plain: bool) -> Key | None:
    """The key for a copy; `None` for the same as before, or for none where the copy is to be `plain`."""
    if plain and source is not None:
        raise InvalidArgument("plain", plain, "give a key, or plain=True, not both")
    return await given_key(source)


async def given_key(source: KeySource | None) -> Key | None:
    """The key that is given, or that the function returns. Raises `InvalidKey`, and what the function raises."""
    return as_key(await given_secret(source))


def written(secret: Secret) -> str:
    """A key as a text: bytes in hexadecimal digits."""
    return secret if isinstance(secret, str) else f"x'{secret.hex()}'"


async def given_secret(source: KeySource | None) -> Secret | None:
    """The key, or the result of your function, unchecked."""
    if not callable(source):
        return source
    given = source()
    return await given if isinstance(given, Awaitable) else given
