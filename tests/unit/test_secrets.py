"""Secrets are found by their names and by their look, and what only resembles one is left."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_engine.core.spelling import Sought
from memory_engine.language.secrets import MASK, READ_CHARS_MAX, holds_secret, mask_secrets, secrets_in

TOLD = [
    ("password: hunter2", "password: [secret]"),
    ("db:\n  user: app\n  password: hunter2\n  port: 5", "db:\n  user: app\n  password: [secret]\n  port: 5"),
    ('{"user": "app", "password": "hunter2", "port": 5}', '{"user": "app", "password": [secret], "port": 5}'),
    ("DB_PASSWORD=hunter2", "DB_PASSWORD=[secret]"),
    ('dbPassword = "x y z"', "dbPassword = [secret]"),
    ("<password>hunter2</password>", "<password>[secret]</password>"),
    ("psql --password hunter2", "psql --password [secret]"),
    ("postgres://app:hunter2@db/x", "postgres://app:[secret]@db/x"),
    ("Password: correct horse battery", "Password: [secret]"),
    ("My password is correct-horse-battery.", "My password is [secret]"),
    ("the password for staging is Tr0ub4dor", "the password for staging is [secret]"),
    ("The password is always hunter2", "The password is always [secret]"),
    ("mein Kennwort ist Sonnenblume", "mein Kennwort ist [secret]"),
    ("contraseña: secreto", "contraseña: [secret]"),
    ("Mon mot de passe est tournesol", "Mon mot de passe est [secret]"),
    ("пароль: qwerty", "пароль: [secret]"),
    ("密码是 hunter2", "密码是 [secret]"),
    ("パスワード: abc", "パスワード: [secret]"),
    ("Our PIN is 4711, tell no one", "Our PIN is [secret], tell no one"),
    ("Notre code PIN est 4711", "Notre code PIN est [secret]"),
    ("CVV 123", "CVV [secret]"),
    ("api_key = abcdefgh", "api_key = [secret]"),
    ("token: abcdef123", "token: [secret]"),
    ("Authorization: Bearer abcdef123456", "Authorization: [secret]"),
    ("use sk-proj-9fK2mQ7xW4vT8nB3cR6yZ1aL for it", "use [secret] for it"),
    ("AKIAIOSFODNN7EXAMPLE", MASK),
    ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", MASK),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc", MASK),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nx", f"{MASK}\nx"),
    ("-----BEGIN PRIVATE KEY-----\nMIIE", MASK),
    ("wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY1", MASK),
    ("pay with 4111 1111 1111 1111 please", "pay with [secret] please"),
    ("DE89 3704 0044 0532 0130 00", MASK),
]
TOLD_NOT = [
    "The password is required.",
    "my password is not working",
    "Reset your password in the settings",
    "the password policy is strict",
    "Passwords are stored as hashes",
    "Password must have 12 characters",
    "password=${DB_PASSWORD}",
    "password: ****",
    "The token expired yesterday.",
    "max_tokens = 500",
    "token_count: 500",
    "token = next(tokens)",
    "a clear secret: patience",
    "the key is to listen",
    "She pins notes on the wall. The pin is loose.",
    "tan lines",
    "Customer2024RevenueReportFinal",
    "550e8400-e29b-41d4-a716-446655440000",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "Order 4111 1111 1111 1112",
    "DE89 3704 0044 0532 0130 03",
    "+49 30 1234567890",
    "https://example.org/some/Path/To/File2024",
    "Revenue dips every Sunday",
    "",
]


@pytest.mark.parametrize(("text", "masked"), TOLD)
def test_a_secret_is_masked(text: str, masked: str) -> None:
    """Behind its name in many languages and notations, by its beginning, by its check digits, by its randomness."""
    assert holds_secret(text)
    assert masked == mask_secrets(text)


@pytest.mark.parametrize("text", TOLD_NOT)
def test_what_only_resembles_a_secret_stays(text: str) -> None:
    """A sentence about passwords, a placeholder, a number, a hash, an id."""
    assert not holds_secret(text)
    assert text == mask_secrets(text)


@given(st.lists(st.sampled_from([text for text, _ in TOLD] + TOLD_NOT), max_size=4), st.text(max_size=20))
def test_masking_again_changes_nothing(parts: list[str], other: str) -> None:
    """Whatever stands together, what is masked holds no secret any more."""
    once = mask_secrets("\n".join([*parts, other]))
    assert once == mask_secrets(once)
    assert not holds_secret(once)


@given(st.text(max_size=200))
def test_secrets_are_in_order_and_apart(text: str) -> None:
    """Any text has its secrets from left to right, each within it."""
    found = secrets_in(text)
    bounds = [bound for secret in found for bound in (secret.start, secret.end)]
    assert sorted(bounds) == bounds
    assert all(0 <= bound <= len(text) for bound in bounds)


@pytest.mark.parametrize("sign", ["password ", "a", "-", "=", "1 ", "a1B", "a://", "--a-", "AB12 ", 'pin: "'])
def test_a_secret_is_found_behind_a_long_text(sign: str) -> None:
    """The pieces in which a long text is read overlap, so that nothing falls between them."""
    text = sign * ((READ_CHARS_MAX + 5_000) // len(sign))
    assert secrets_in(f"{text}\npassword: hunter2")[-1].end == len(text) + len("\npassword: hunter2")


@given(st.sampled_from(["hunter2-Blau", "pässwört 9"]), st.lists(st.booleans(), min_size=1, max_size=3))
def test_a_secret_is_found_in_escaped_json(secret: str, depths: list[bool]) -> None:
    """At any depth, as in the arguments of a call within another; masked, it is gone, and the text around it stays."""
    written: str = json.dumps({"note": "before", "password": secret, "after": "it"})
    for is_ascii in depths:
        written = json.dumps(f"I called it with {written}", ensure_ascii=is_ascii)
    assert holds_secret(written)
    masked = mask_secrets(written)
    assert MASK in masked
    assert not Sought(secret).is_in(masked.encode())
    assert "before" in masked
    assert masked == mask_secrets(masked)


def test_a_secret_is_masked_with_its_escapes() -> None:
    """From the first character of its first escape on, and not a character more."""
    assert mask_secrets('{\\"password\\": \\"h\\u00fcnter2\\", \\"n\\": 1}') == '{\\"password\\": [secret], \\"n\\": 1}'
