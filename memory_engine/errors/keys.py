"""The errors of encrypted stores. None of them holds a key."""

from memory_engine.errors.base import InvalidInput, facts
from memory_engine.errors.effects import StorageError


@facts
class InvalidKey(InvalidInput):
    """What was given as a key cannot be one. It is not repeated here."""

    why: str

    def __str__(self) -> str:
        return f"the key cannot be used: {self.why}"


@facts
class KeyNeeded(StorageError):
    """The file is encrypted, and no key was given. Nothing was changed."""

    path: str

    def __str__(self) -> str:
        return (
            f"{self.path} is encrypted, or not a store at all: give its key, memory_engine.open(..., key=...), or at "
            "the command line --key-file or --key-env. Nothing was changed"
        )


@facts
class WrongKey(StorageError):
    """The key does not open the file. Nothing was changed."""

    path: str

    def __str__(self) -> str:
        return (
            f"{self.path}: this key does not open it. Give the key that it was encrypted with; if that is this one, "
            "the beginning of the file is damaged: put a backup back. Nothing was changed"
        )


@facts
class NotEncrypted(StorageError):
    """A key was given for a file that is not encrypted. Nothing was changed."""

    path: str

    def __str__(self) -> str:
        return (
            f"{self.path} is not encrypted, and a key was given: open it without one, or encrypt it first, with "
            "`memory-engine rekey` or `Engine.rekey`. Nothing was changed"
        )


@facts
class KeyUnsupported(StorageError):
    """A key was given for a store that is not a file. Nothing was opened."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path} takes no key: {self.why}"


@facts
class StoreInUse(StorageError):
    """Another process, or another engine of this one, has the file open. Nothing was changed."""

    path: str

    def __str__(self) -> str:
        return (
            f"{self.path} is open elsewhere, in another process or by another engine of this one (a backup counts "
            "too): close it there, then try again. Nothing was changed"
        )
