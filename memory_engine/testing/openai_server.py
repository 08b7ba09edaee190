"""A real HTTP server on loopback that speaks `POST /v1/chat/completions` by a script.

    async with OpenAIServer(rate_limited(), answer("All done.")) as server:
        model = LiteLLM("openai/any", api_base=server.base_url, api_key="any")

It speaks Anthropic's `POST /v1/messages` too; its clients want `base_url` without the `/v1`.

Without a script it also embeds (`POST /v1/embeddings`, by `HashEmbedder`) and ranks (`POST /v1/rerank`, by the
likeness of these vectors); a script answers every request.

Use it to test code that calls a model: nothing is patched, so that timeouts, retries, connections and
cancellation are the real ones.
"""

import asyncio
import contextlib
import operator
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from types import TracebackType

import msgspec
from attrs import evolve, field, frozen

from memory_engine.testing.fakes import HashEmbedder

PATH = "/v1/chat/completions"


class ChatMessage(msgspec.Struct, frozen=True):
    """A message of a request; mixed content comes as a list of parts."""

    role: str
    content: str | list[dict[str, object]] | None = None

    @property
    def text(self) -> str:
        """The content where it is a text, else empty."""
        return self.content if isinstance(self.content, str) else ""


class ChatRequest(msgspec.Struct, frozen=True):
    """A request for a completion. `headers` have lower-case names."""

    model: str
    messages: list[ChatMessage]
    temperature: float | None = None
    max_tokens: int | None = None
    headers: dict[str, str] = {}


class MessagesRequest(ChatRequest, frozen=True):
    """A request for a message of Anthropic's. `headers` have lower-case names."""

    system: str | list[dict[str, object]] | None = None


class EmbeddingsRequest(msgspec.Struct, frozen=True):
    """A request for vectors. `headers` have lower-case names."""

    model: str
    input: list[str]
    dimensions: int | None = None
    headers: dict[str, str] = {}


class RerankRequest(msgspec.Struct, frozen=True):
    """A request for relevance. `headers` have lower-case names."""

    model: str
    query: str
    documents: list[str]
    top_n: int | None = None
    headers: dict[str, str] = {}


OpenAIRequest = ChatRequest | EmbeddingsRequest | RerankRequest
PATHS: Mapping[str, type[OpenAIRequest]] = {
    PATH: ChatRequest,
    "/v1/messages": MessagesRequest,
    "/v1/embeddings": EmbeddingsRequest,
    "/v1/rerank": RerankRequest,
    "/v2/rerank": RerankRequest,
}


@frozen(kw_only=True)
class Reply:
    """The server's reply to one request. `body` may depend on the request; `None` cuts the connection.

    It answers after `delay_s` and, where `until` is given, not before that is set.
    """

    body: bytes | Callable[[OpenAIRequest], bytes] | None
    status: int = 200
    headers: Mapping[str, str] = field(factory=dict)
    delay_s: float = 0.0
    until: asyncio.Event | None = None

    def delayed(self, delay_s: float) -> "Reply":
        """The same, after a delay."""
        return evolve(self, delay_s=delay_s)

    def held(self, until: asyncio.Event) -> "Reply":
        """The same, once `until` is set."""
        return evolve(self, until=until)


def answer(text: str | None, *, finish_reason: str = "stop", usage: tuple[int, int] = (100, 20)) -> Reply:
    """An answer; `usage` are the tokens of the prompt and of the completion that it reports."""
    message = {"role": "assistant", "content": text}
    return Reply(body=lambda request: _completion(request, message, finish_reason, usage))


def echo() -> Reply:
    """The text of the request's last message comes back; texts to embed or to rank, embedded or ranked."""

    def body(request: OpenAIRequest) -> bytes:
        if isinstance(request, EmbeddingsRequest):
            return _embeddings(request.model, _vectors(request.input, request.dimensions))
        if isinstance(request, RerankRequest):
            return _ranking(_likenesses(request))
        text = request.messages[-1].text if request.messages else ""
        return _completion(request, {"role": "assistant", "content": text}, "stop", (100, 20))

    return Reply(body=body)


def embeddings(*vectors: list[float]) -> Reply:
    """These vectors, last one first: each has an index, so their order is free."""
    return Reply(body=lambda request: _embeddings(request.model, list(vectors)))


def ranking(*scores: float) -> Reply:
    """These scores, in the order of the texts; they are sent best first."""
    return Reply(body=_ranking(scores))


def refusal(text: str = "I cannot help with that.") -> Reply:
    """No content, but a refusal, as providers with structured answers report it."""
    message = {"role": "assistant", "content": None, "refusal": text}
    return Reply(body=lambda request: _completion(request, message, "stop", (100, 20)))


def filtered() -> Reply:
    """The provider's filter stopped the answer."""
    return answer("", finish_reason="content_filter")


def truncated(text: str) -> Reply:
    """The answer met the limit of its tokens."""
    return answer(text, finish_reason="length")


def empty() -> Reply:
    """A well-formed answer that says nothing."""
    return answer("")


def failing(
    status: int = 500,
    message: str = "scripted failure",
    *,
    code: str | None = None,
    retry_after: str | None = None,
) -> Reply:
    """An error of the provider; `retry_after` goes into the header unchanged."""
    body = msgspec.json.encode({"error": {"message": message, "type": "scripted", "code": code}})
    return Reply(status=status, body=body, headers={"retry-after": retry_after} if retry_after else {})


def rate_limited(retry_after: str = "0") -> Reply:
    """Too many requests: come back after a number of seconds, or at this HTTP date."""
    return failing(429, "too many requests", retry_after=retry_after)


def invalid_json() -> Reply:
    """Status 200 and a body that is not JSON."""
    return Reply(body=b'{"id": "chatcmpl-1", "choices": [')


def disconnect() -> Reply:
    """The connection ends without an answer."""
    return Reply(body=None)


class OpenAIServer:
    """Answers request n with reply n of its script; the last reply also answers all that follow.

    Without a script it echoes. Requests that are under way when it closes are cut off.
    """

    def __init__(self, *script: Reply) -> None:
        self._script = script or (echo(),)
        self._connections: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._count = 0
        self.requests: list[ChatRequest] = []
        self.embeddings: list[EmbeddingsRequest] = []
        self.rankings: list[RerankRequest] = []

    @property
    def base_url(self) -> str:
        """The value for a client's `api_base`. Raises `RuntimeError` outside the `async with`."""
        if self._server is None:
            raise RuntimeError("the server is not running; use `async with OpenAIServer(...)`")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> "OpenAIServer":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for task in self._connections:
                task.cancel()
            if self._connections:
                await asyncio.wait(self._connections)
            await server.wait_closed()

    async def received(self, count: int) -> None:
        """Wait until `count` requests have come in, answered or not."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: self._count >= count)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of one connection; the client may go away at any time."""
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._respond(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path, headers, body = await _read_request(reader)
        request: OpenAIRequest = ChatRequest(model="", messages=[])
        try:
            request = msgspec.json.decode(body, type=PATHS.get(path, ChatRequest))
        except msgspec.MsgspecError as error:
            reply = failing(400, str(error))
        else:
            request = msgspec.structs.replace(request, headers=headers)
            reply = await self._take(request) if path in PATHS else failing(404, f"only {', '.join(PATHS)} are here")
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        if reply.until is not None:
            await reply.until.wait()
        if reply.body is not None:
            content = reply.body if isinstance(reply.body, bytes) else reply.body(request)
            writer.write(_response_head(reply, len(content)) + content)
            await writer.drain()

    async def _take(self, request: OpenAIRequest) -> Reply:
        """Record the request and choose its reply: by number of arrival."""
        async with self._arrived:
            reply = self._script[min(self._count, len(self._script) - 1)]
            self._count += 1
            if isinstance(request, EmbeddingsRequest):
                self.embeddings.append(request)
            elif isinstance(request, RerankRequest):
                self.rankings.append(request)
            else:
                self.requests.append(request)
            self._arrived.notify_all()
        return reply


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        if name:
            headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return head[0].split(" ")[1], headers, body


def _response_head(reply: Reply, length: int) -> bytes:
    fields = {
        "content-type": "application/json",
        "content-length": str(length),
        "connection": "close",
        **reply.headers,
    }
    lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _vectors(texts: Sequence[str], dimension: int | None) -> list[list[float]]:
    embedder = HashEmbedder(dimension) if dimension else HashEmbedder()
    return [embedder.vector(text) for text in texts]


def _likenesses(request: RerankRequest) -> list[float]:
    query, *others = _vectors([request.query, *request.documents], None)
    return [sum(map(operator.mul, query, other)) for other in others]


def _embeddings(model: str, vectors: list[list[float]]) -> bytes:
    items = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)]
    usage = {"prompt_tokens": 10, "total_tokens": 10}
    return msgspec.json.encode({"object": "list", "model": model, "data": items[::-1], "usage": usage})


def _ranking(scores: Sequence[float]) -> bytes:
    best = sorted(enumerate(scores), key=lambda item: -item[1])
    results = [{"index": place, "relevance_score": score} for place, score in best]
    return msgspec.json.encode({"id": "rerank-scripted", "results": results})


STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
"""Anthropic's words for how an answer ended."""


def _anthropic_message(request: MessagesRequest, text: object, finish_reason: str, usage: tuple[int, int]) -> bytes:
    content = [{"type": "text", "text": text}] if text else []
    whole = {"id": "msg-scripted", "type": "message", "role": "assistant", "model": request.model, "content": content}
    counted = {"input_tokens": usage[0], "output_tokens": usage[1]}
    stop_reason = STOP_REASONS.get(finish_reason, finish_reason)
    return msgspec.json.encode({**whole, "stop_reason": stop_reason, "stop_sequence": None, "usage": counted})


def _completion(
    request: OpenAIRequest, message: Mapping[str, object], finish_reason: str, usage: tuple[int, int]
) -> bytes:
    if isinstance(request, MessagesRequest):
        reason = "content_filter" if message.get("refusal") else finish_reason
        return _anthropic_message(request, message["content"], reason, usage)
    return msgspec.json.encode(
        {
            "id": "chatcmpl-scripted",
            "object": "chat.completion",
            "created": 1,
            "model": request.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": {
                "prompt_tokens": usage[0],
                "completion_tokens": usage[1],
                "total_tokens": usage[0] + usage[1],
            },
        }
    )
