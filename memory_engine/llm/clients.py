"""Models over clients that you have already: the SDKs of OpenAI and Anthropic. Nothing of them is imported here.

model = OpenAIModel(AsyncOpenAI(), "gpt-5-mini")
async with memory_engine.open("agent.db", compact_model=model) as engine:
...
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memory_engine.errors import ModelError
from memory_engine.llm.answers import chat_text, chat_usage, message_text, message_usage, total, with_usage
from memory_engine.llm.base import Completion, Message
from memory_engine.llm.failures import model_error
from memory_engine.llm.tries import CallOptions, tried


class _ClientModel:
    """The common part of both: the tries, the errors, the time. The client remains yours: it is not closed here."""

    def __init__(
        self,
        client: object,
        model: str,
        *,
        retries: int = 2,
        options: CallOptions = CallOptions(),  # noqa: B008 - frozen
    ) -> None:
        if not hasattr(type(client), "__aenter__"):
            raise TypeError(f"{type(client).__name__} is not an asynchronous client: give the one named Async…")
        self._client: Any = client
        self._model = model
        self._retries = retries
        self._options = options
        self._unsupported: set[str] = set()

    @property
    def name(self) -> str:
        """The name given."""
        return self._model

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r})"

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """The answer (see `LanguageModel.complete`). A parameter that the model refuses (`temperature`) is left out.

        The client's own retries are off: they would not know the time that is left.
        """
        spent: list[Any] = []
        given = {"temperature": temperature, "max_tokens": max_tokens}

        async def attempt() -> Completion:
            return await self._attempt(messages, given, timeout_s, spent)

        try:
            return await tried(self._model, attempt, retries=self._retries, timeout_s=timeout_s, options=self._options)
        except ModelError as error:
            raise with_usage(error, spent) from error.__cause__

    async def aclose(self) -> None:
        """Do nothing: the client is yours."""

    async def _attempt(
        self, messages: Sequence[Message], given: Mapping[str, object], timeout_s: float, spent: list[Any]
    ) -> Completion:
        while True:
            client = self._client.with_options(max_retries=0, timeout=timeout_s)
            try:
                response = await self._ask(client, messages, given)
            except Exception as error:  # the boundary to a library: all its errors become typed
                if self._learned_from(error, self._supported(given)):
                    continue
                raise self._typed(error) from error
            return self._read(response, spent)

    def _supported(self, given: Mapping[str, object]) -> dict[str, object]:
        return {name: value for name, value in given.items() if name not in self._unsupported}

    def _learned_from(self, error: Exception, sent: Mapping[str, object]) -> bool:
        """Whether the model refused a parameter that can be left out; from now on it is."""
        if getattr(error, "status_code", None) != 400:
            return False
        param, text = getattr(error, "param", None), str(error).lower()
        words = ("not supported", "unsupported", "deprecated")
        refused = next(
            (name for name in sent if param == name or (name in text and any(word in text for word in words))), None
        )
        if refused is None:
            return False
        self._unsupported.add(refused)
        return True

    def _typed(self, error: Exception) -> ModelError:
        return model_error(self._model, error, secret=getattr(self._client, "api_key", None))

    async def _ask(self, client: Any, messages: Sequence[Message], given: Mapping[str, object]) -> object:
        raise NotImplementedError

    def _read(self, response: object, spent: list[Any]) -> Completion:
        raise NotImplementedError

    def _completion(self, response: object, text: str, spent: list[Any]) -> Completion:
        return Completion(
            text=text,
            model=str(getattr(response, "model", None) or self._model),
            response_id=str(getattr(response, "id", None) or ""),
            usage=total(spent),
        )


class OpenAIModel(_ClientModel):
    """A model of an `AsyncOpenAI` client, by its name: OpenAI's, or another server's that speaks chat completions.

    `retries` is how often a failure that may pass is tried again. Raises `TypeError` for a client that is not
    asynchronous. `aclose` does not close the client.
    """

    async def _ask(self, client: Any, messages: Sequence[Message], given: Mapping[str, object]) -> object:
        request = {**self._options.parameters, **self._supported(given)}
        if "max_tokens" in self._unsupported:  # models that reason take it by its newer name
            request["max_completion_tokens"] = given["max_tokens"]
        said = [dict(message) for message in messages]
        return await client.chat.completions.create(model=self._model, messages=said, **request)

    def _read(self, response: object, spent: list[Any]) -> Completion:
        spent.append(chat_usage(response))
        return self._completion(response, chat_text(self._model, response), spent)


class AnthropicModel(_ClientModel):
    """A model of an `AsyncAnthropic` client, by its name.

    `retries` is how often a failure that may pass is tried again. Raises `TypeError` for a client that is not
    asynchronous. `aclose` does not close the client.
    """

    async def _ask(self, client: Any, messages: Sequence[Message], given: Mapping[str, object]) -> object:
        system, said = _as_anthropic(messages)
        supported = self._supported(given)
        max_tokens = supported.pop("max_tokens", given["max_tokens"])
        parameters = dict(self._options.parameters)
        more = parameters.pop("extra_body", None)
        # newer versions of the SDK know no `temperature`, and most models take it all the same
        body = {**(more if isinstance(more, Mapping) else {}), **supported}
        request = {**parameters, "max_tokens": max_tokens, "extra_body": body}
        if system:
            request["system"] = system
        return await client.messages.create(model=self._model, messages=said, **request)

    def _read(self, response: object, spent: list[Any]) -> Completion:
        spent.append(message_usage(response))
        return self._completion(response, message_text(self._model, response), spent)


def _as_anthropic(messages: Sequence[Message]) -> tuple[str, list[dict[str, str]]]:
    """The instructions at the beginning, and the other messages; instructions among these are a note of the user."""
    first = next((n for n, message in enumerate(messages) if message.get("role") != "system"), len(messages))
    system = "\n\n".join(map(_message_text, messages[:first]))
    roles = ("assistant" if message.get("role") == "assistant" else "user" for message in messages[first:])
    said = [{"role": role, "content": _message_text(one)} for role, one in zip(roles, messages[first:], strict=True)]
    return system, said or [{"role": "user", "content": "Go on."}]


def _message_text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str) or content is None:
        return content or ""
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))
