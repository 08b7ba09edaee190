"""Event ids made from what an event is about: a second attempt at the same thing is the first one's."""

from hashlib import sha256


def derived_id(purpose: str, *parts: str) -> str:
    """An id that only the same purpose with the same parts gives. Parts may be any text of any length."""
    digest = sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return f"{purpose}:{digest.hexdigest()[:40]}"
