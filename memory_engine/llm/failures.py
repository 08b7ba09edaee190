"""Failures of calls to providers, as `ModelError`: one table for all errors that the libraries raise.

Classes are known by name, so that reading the table imports neither library. An exception's own
classes are looked up from the most special to the most general.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal

from memory_engine.errors import ModelError
from memory_engine.language.masking import without_secrets

Reason = Literal[
    "timeout",
    "rate_limited",
    "unavailable",
    "refused",
    "truncated",
    "authentication",
    "context_window",
    "bad_request",
    "invalid_response",
]
FailureVerdict = tuple[Reason, bool]
"""The reason, and whether another try may help."""

ERROR_CHARS_MAX = 500
"""Characters kept of an error's text: it goes into the log, and providers quote whole requests in it."""

BY_CODE: Mapping[str, FailureVerdict] = {
    "content_filter": ("refused", False),
    "content_policy_violation": ("refused", False),
    "context_length_exceeded": ("context_window", False),
    "invalid_api_key": ("authentication", False),
}
"""Failures by the provider's own code, which says more than the class."""

BY_CLASS: Mapping[str, FailureVerdict] = {
    # the provider will not
    "BlockedPiiEntityError": ("refused", False),
    "BudgetExceededError": ("refused", False),
    "ContentPolicyViolationError": ("refused", False),
    "GuardrailRaisedException": ("refused", False),
    "ModifyResponseException": ("refused", False),
    "RejectedRequestError": ("refused", False),
    "SensitiveDataRouteException": ("refused", False),
    # not with this key, or this account
    "AuthenticationError": ("authentication", False),
    "PaymentRequiredError": ("authentication", False),
    "PermissionDeniedError": ("authentication", False),
    # not this request
    "ContextWindowExceededError": ("context_window", False),
    "BadRequestError": ("bad_request", False),
    "ConflictError": ("unavailable", True),
    "ModelNotMappedError": ("bad_request", False),
    "NotFoundError": ("bad_request", False),
    "UnprocessableEntityError": ("bad_request", False),
    # not now
    "APITimeoutError": ("timeout", True),
    "Timeout": ("timeout", True),
    "TimeoutError": ("timeout", True),
    "RateLimitError": ("rate_limited", True),
    "APIConnectionError": ("unavailable", True),
    "BadGatewayError": ("unavailable", True),
    "InternalServerError": ("unavailable", True),
    "OSError": ("unavailable", True),
    "ServiceUnavailableError": ("unavailable", True),
    # not like this
    "APIResponseValidationError": ("invalid_response", True),
}
BY_CAUSE: Mapping[str, FailureVerdict] = {
    "json.decoder.JSONDecodeError": ("invalid_response", True),
    "openai.APIResponseValidationError": ("invalid_response", True),
    "openai.OpenAIError": ("authentication", False),  # itself, it is raised for missing credentials only
    "builtins.UnicodeEncodeError": ("bad_request", False),
}
"""Failures by an underlying exception: litellm raises InternalServerError for every error it does not know."""

BY_STATUS: Mapping[int, FailureVerdict] = {
    401: ("authentication", False),
    402: ("authentication", False),
    403: ("authentication", False),
    408: ("timeout", True),
    409: ("unavailable", True),
    413: ("context_window", False),
    425: ("unavailable", True),
    429: ("rate_limited", True),
}


def verdict_on(error: BaseException) -> FailureVerdict:
    """The reason of a failed call, and whether to retry; an unforeseen failure is an invalid response, and final."""
    code = getattr(error, "code", None)
    if isinstance(code, str) and code in BY_CODE:
        return BY_CODE[code]
    classes = [cls.__name__ for cls in type(error).__mro__]
    found = next((BY_CLASS[name] for name in classes if name in BY_CLASS), None)
    if found is None or found == ("unavailable", True):
        for cause in (error, *_causes(error)):
            name = f"{type(cause).__module__}.{type(cause).__name__}"
            if name in BY_CAUSE:
                return BY_CAUSE[name]
    return found or _by_status(getattr(error, "status_code", None))


TOO_LONG = (
    "prompt is too long",
    "maximum context length",
    "context window",
    "context size",
    "context length",
    "exceed_context_size",
    "maximum number of tokens",
    "input is too long",
    "input token count",
)
"""Words by which servers refuse a prompt that is too long: few of them have a code for it."""
SECRET_CHARS_MIN = 8
"""A shorter key is a placeholder, such as "x" or "ollama" for a server that asks for none: it is no secret."""


def model_error(model: str, error: Exception, *, secret: str | None = None) -> ModelError:
    """The typed error. Secrets, also the given one, are masked in its text, which is shortened for the record."""
    reason, retryable = verdict_on(error)
    text = " ".join(str(error).split()) or type(error).__name__
    if reason in ("bad_request", "unavailable") and any(words in text.lower() for words in TOO_LONG):
        reason, retryable = "context_window", False
    if secret and len(secret) >= SECRET_CHARS_MIN:
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "[key]", text)
    text = without_secrets(text)
    if len(text) > ERROR_CHARS_MAX:
        text = text[: ERROR_CHARS_MAX - 2] + " …"
    return ModelError(model, reason, text, retryable)


def safe_to_record(error: ModelError) -> ModelError:
    """Return a model's error without the secrets in its text: providers quote keys and whole requests."""
    said = without_secrets(error.error)
    if said == error.error:
        return error
    return ModelError(error.model, error.reason, said, error.retryable, error.usage)


def unforeseen(model: str, error: Exception) -> ModelError:
    """Return the typed error for what your own model raised against its protocol: its class is the reason."""
    name = type(error).__name__
    return ModelError(model, name, without_secrets(f"{name}: {error}"))


def retry_after_s(error: BaseException | None) -> float:
    """The pause that a provider's Retry-After header asks for, in seconds (0: none)."""
    for source in (error, getattr(error, "response", None)):
        for name in ("litellm_response_headers", "headers"):
            headers = getattr(source, name, None)
            if isinstance(headers, Mapping) and (value := headers.get("retry-after")):
                return _seconds(str(value))
    return 0.0


def _by_status(status: object) -> FailureVerdict:
    if not isinstance(status, int):
        return ("invalid_response", False)
    if status in BY_STATUS:
        return BY_STATUS[status]
    if status >= 500:
        return ("unavailable", True)
    return ("bad_request", False) if status >= 400 else ("invalid_response", False)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exceptions underneath, through at most ten layers."""
    current = error.__cause__ or error.__context__
    for _ in range(10):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def _seconds(value: str) -> float:
    """Seconds from a number or an HTTP date (RFC 9110, 10.2.3); 0 for anything else."""
    from email.utils import parsedate_to_datetime

    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except ValueError:
            return 0.0
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return seconds if 0 < seconds < float("inf") else 0.0
