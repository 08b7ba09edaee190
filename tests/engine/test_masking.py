"""What leaves an engine: no secret reaches a model, an embedder, telemetry or the program's log."""

import json
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import memory_engine
from memory_engine import (
    Chunk,
    CompactionContext,
    CompactionPolicy,
    CompactionResult,
    Engine,
    Event,
    LlmTextResponse,
    LlmToolCall,
    Mask,
    Thread,
    ToolCall,
    ToolResult,
    UserMessage,
)
from memory_engine.agents.extraction import Finished, ModelFacts, Said
from memory_engine.engine import kernel_of
from memory_engine.errors import CompactorFailed, MemoryEngineError, ModelError
from memory_engine.events import CompactionFailed, ExecutionResume, SummaryLine
from memory_engine.language.masking import Destination
from memory_engine.llm.base import Completion, MaskedModel, Message
from memory_engine.llm.vectors import Vector
from memory_engine.recall.rerankers import ModelReranker
from memory_engine.telemetry import OpenTelemetry
from memory_engine.testing import HashEmbedder
from memory_engine.views.promotion.scorers import ModelScorer
from tests.unit.test_events import SAMPLES

KEY = "glpat-Qm3vX8rT2nW5kB9dYz7f"
PASSWORD = "brine-Lantern!58"
SECRETS = (KEY, PASSWORD)
TOLD = f"The GitLab token is {KEY}, and the password for the harbour door is {PASSWORD}."
BY_HAND = CompactionPolicy(enabled=False, keep_recent=0)


HEADING = "## Progress Summary\n\n### Key Information\n\n"
SUMMARY = HEADING + "- The tokens {} were given [1]\n"
TOGETHER = 12
"""Events that one thread gets."""


def placeholders(text: str) -> str:
    """The placeholders in a text, in order."""
    return " and ".join(dict.fromkeys(re.findall(r"\[secret-\d+:\w+\]", text)))


class Model:
    """Notes what it is asked, and answers with a summary that quotes its input's placeholders, or what it is given."""

    name = "recorder"

    def __init__(self, answer: str = "") -> None:
        self.asked: list[str] = []
        self.answer = answer

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """Answer."""
        said = json.dumps([dict(message) for message in messages], ensure_ascii=False)
        self.asked.append(said)
        text = (self.answer or SUMMARY).format(placeholders(said))
        return Completion(text=text, model="recorder-1")

    async def aclose(self) -> None:
        """Nothing is open."""


class Embedder(HashEmbedder):
    """Notes what it embeds."""

    def __init__(self) -> None:
        super().__init__(16)
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Embed by hashes."""
        self.asked += texts
        return await super().embed(texts)


class Compactor:
    """Notes its whole input, and answers with one line."""

    name = "recorder"

    def __init__(self, line: str = "They gave {}.") -> None:
        self.asked: list[str] = []
        self.line = line

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Take all."""
        return True

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """Return one line."""
        self.asked.append(repr(chunks) + repr(context))
        line = self.line.format(placeholders(self.asked[-1]))
        return CompactionResult(lines=(SummaryLine("key_information", line, ()),))


class Lines(logging.Handler):
    """Keeps the log's lines, as a formatter writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.lines.append(self.format(record) + repr({k: v for k, v in vars(record).items() if k != "exc_info"}))


def exporter() -> tuple[OpenTelemetry, InMemorySpanExporter]:
    """A probe that tells everything, and what it tells."""
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return OpenTelemetry(provider, content=True), kept


def told(kept: InMemorySpanExporter) -> str:
    """All that spans say: names, attributes, events, states and links."""
    return "\n".join(span.to_json() for span in kept.get_finished_spans())


def leaked(*texts: str) -> list[str]:
    """The secrets in texts."""
    return [secret for secret in SECRETS if any(secret in text for text in texts)]


def told_by(event: Event) -> Event | None:
    """The event with secrets in each of its texts; `None` for one without a text."""
    plain = msgspec.to_builtins(event)

    def filled(value: object, key: str = "") -> object:
        if isinstance(value, dict):
            return {name: filled(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [filled(one, key) for one in value]
        if key == "arguments":
            return json.dumps({"token": KEY, "password": PASSWORD})
        return TOLD if isinstance(value, str) and key in _TEXTS else value

    changed = filled(plain)
    return msgspec.convert(changed, type(event)) if changed != plain else None


_TEXTS = {"content", "text", "goal", "task", "reason", "query", "value", "description", "outcome", "user_query", "alt"}
EVENTS = [event for sample in SAMPLES if (event := told_by(sample)) is not None]


async def at_work(engine: Engine, thread: Thread) -> None:
    """Let the engine do with a thread what sends texts away."""
    await thread.dispatch(UserMessage(content="What about the next boat? " * 20))
    await thread.dispatch(LlmTextResponse(content="It leaves at noon from the second pier. " * 20))
    await thread.admin.prepare_search()
    await thread.search(f"which token is {KEY}?")
    await thread.context(4_000, query=f"the password is {PASSWORD}")
    with suppress(MemoryEngineError):
        await thread.compact(focus=f"password: {PASSWORD}")
    await engine.settle()


async def test_no_secret_leaves_in_any_kind_of_event(caplog: pytest.LogCaptureFixture) -> None:
    """Each kind of event is told a secret in all of its texts; then its thread is searched, asked and compacted."""
    model, embedder, compactor = Model(), Embedder(), Compactor()
    probe, kept = exporter()
    lines, taken = Lines(), 0
    logging.getLogger().addHandler(lines)
    caplog.set_level(logging.DEBUG)
    try:
        async with memory_engine.open(
            ":memory:", compact_model=model, memory_model=model, embedder=embedder, probe=probe,
            reranker=ModelReranker(model), scorers=[ModelScorer(model)],
        ) as engine:  # fmt: skip
            for n in range(0, len(EVENTS), TOGETHER):
                thread = await engine.create_thread(f"t{n}", user_id="u", policy=BY_HAND)
                for event in EVENTS[n : n + TOGETHER]:
                    with suppress(MemoryEngineError):  # it needs another before it, or is the engine's own
                        await thread.dispatch_all([event, ExecutionResume()])  # which ends a pause
                        taken += 1
                await at_work(engine, thread)
                if n:
                    engine.register_compactor(compactor)
    finally:
        logging.getLogger().removeHandler(lines)
    assert taken >= 30
    assert (True, True, True) == (bool(model.asked), bool(embedder.asked), bool(compactor.asked))
    assert [] == leaked(*model.asked), "a model"
    assert [] == leaked(*embedder.asked), "an embedder"
    assert [] == leaked(*compactor.asked), "a compactor"
    assert [] == leaked(told(kept)), "a span"
    assert [] == leaked(*lines.lines), "a line of the log"


async def history(engine: Engine, thread_id: str = "t") -> Thread:
    """A thread that was told the secrets, and used one."""
    thread = await engine.create_thread(thread_id, policy=BY_HAND)
    await thread.dispatch(UserMessage(content=TOLD + " Open the harbour door." + " It is cold outside." * 30))
    arguments = json.dumps({"door": "harbour", "password": PASSWORD})
    await thread.dispatch(LlmToolCall(calls=(ToolCall("c1", "unlock", arguments),)))
    await thread.dispatch(ToolResult(call_id="c1", content=f"Opened with {PASSWORD}. " + "The door is open. " * 30))
    await thread.dispatch(LlmTextResponse(content="It is open."))
    return thread


async def summary(thread: Thread) -> str:
    """The texts of the thread's summaries."""
    return "\n".join(chunk.text for chunk in (await thread.state()).chunks() if chunk.type == "compacted")


async def test_a_summary_keeps_the_values_that_its_model_was_not_told() -> None:
    """The model names placeholders; the log holds the values, and no placeholder."""
    answer = HEADING + "- The door at the harbour opened with the password, {} [2, 3]\n"
    model = Model(answer)
    async with memory_engine.open(":memory:", compact_model=model) as engine:
        thread = await history(engine)
        await thread.compact()
        said = await summary(thread)
    assert [] == leaked(*model.asked)
    assert [] == [secret for secret in SECRETS if secret not in said]
    assert "[secret-" not in said


async def test_a_model_is_asked_about_placeholders_it_made_up() -> None:
    """Its second answer has only those that it was given; the line with another is not kept."""
    answer = f"{HEADING}- It opened with [secret-4:password] [2]\n- The harbour door is open [3]\n"
    model = Model(answer)
    async with memory_engine.open(":memory:", compact_model=model) as engine:
        thread = await history(engine)
        await thread.compact()
        said = await summary(thread)
    assert "[secret-4:password]" in model.asked[1], "it is asked about it"
    assert "The harbour door is open" in said
    assert "[secret-4" not in said


async def test_a_compactor_of_ones_own_cannot_make_up_placeholders() -> None:
    """Its line is left out; where no other is left, the originals stay."""
    async with memory_engine.open(":memory:", compactor=Compactor("It was [secret-99:key].")) as engine:
        thread = await history(engine)
        with pytest.raises(CompactorFailed, match="was not given"):
            await thread.compact()
        assert "" == await summary(thread)


async def test_a_compactor_of_ones_own_gets_placeholders_and_its_lines_the_values() -> None:
    """Chunks, calls and the context of the compaction alike."""
    compactor = Compactor()
    async with memory_engine.open(":memory:", compactor=compactor) as engine:
        thread = await history(engine)
        await thread.compact(focus=f"the password {PASSWORD}")
        said = await summary(thread)
    assert [] == leaked(*compactor.asked)
    assert [] == [secret for secret in SECRETS if secret not in said]


async def test_no_vector_depends_on_a_secret() -> None:
    """Two threads that differ in their secrets alone are embedded as the same texts."""
    embedder = Embedder()
    async with memory_engine.open(":memory:", embedder=embedder) as engine:
        for thread_id, password in (("a", "brine-Lantern!58"), ("b", "other_Pa55word")):
            thread = await engine.create_thread(thread_id)
            await thread.dispatch(UserMessage(content=f"My password is {password}"))
            await thread.admin.prepare_search()
    first, second = embedder.asked
    assert first.partition("]")[2] == second.partition("]")[2] == " user: My password is [secret:password]"


class NoMask:
    """Stands for a release without masks, whose vectors go by the embedder's name."""

    name = ""

    def __call__(self, text: str, _destination: Destination) -> str:
        """Mask nothing."""
        return text


async def test_vectors_of_yesterday_stay(tmp_path: Path) -> None:
    """A store that was embedded without a mask opens, and nothing in it is embedded again."""
    path = tmp_path / "m.db"
    async with memory_engine.open(path, embedder=Embedder(), mask=NoMask()) as engine:
        thread = await history(engine)
        await thread.admin.prepare_search()
    later = Embedder()
    async with memory_engine.open(path, embedder=later) as engine:
        hits = await engine.thread("t").search("harbour door")
    assert ("hybrid", 0) == (hits.how, hits.waiting)
    assert ["harbour door"] == later.asked


class Numbers:
    """Takes out every number."""

    name = "numbers"

    def __call__(self, text: str, destination: Destination) -> str:
        """Mask them."""
        return re.sub(r"\d+", "#", text)


async def test_vectors_of_two_masks_do_not_mix(tmp_path: Path) -> None:
    """A mask with a name has vectors of its own: another one embeds again, as another model would."""
    path = tmp_path / "m.db"
    async with memory_engine.open(path, embedder=Embedder()) as engine:
        thread = await history(engine)
        await thread.admin.prepare_search()
    later = Embedder()
    async with memory_engine.open(path, embedder=later, mask=Numbers()) as engine:
        await engine.thread("t").admin.prepare_search()
        models = await kernel_of(engine).store.passages.models("t")
    assert ["hash-16+numbers"] == list(models)
    assert later.asked
    assert not any(sign.isdigit() for text in later.asked for sign in text)


async def test_a_mask_of_ones_own_is_told_the_destination() -> None:
    """It decides for each what may leave; a plain function's changes are for good."""
    seen: set[Destination] = set()

    def mask(text: str, destination: Destination) -> str:
        seen.add(destination)
        return text.replace("harbour", f"({destination})")

    mask.name = "harbours"  # type: ignore[attr-defined]
    model, embedder, (probe, kept) = Model(), Embedder(), exporter()
    given: Mask = mask
    async with memory_engine.open(
        ":memory:", compact_model=model, embedder=embedder, probe=probe, mask=given
    ) as engine:
        thread = await history(engine)
        await thread.search("the harbour")
        with suppress(CompactorFailed):
            await thread.compact()
    assert {"model", "embedder", "telemetry"} == seen
    assert "harbour" not in "".join([*model.asked, *embedder.asked, told(kept)])
    assert "(model)" in model.asked[0]


async def test_none_masks_nothing() -> None:
    """Models, embedders and telemetry get texts as they are; the program's log and recorded errors do not."""
    model, embedder, compactor, (probe, kept) = Model(), Embedder(), Compactor("x"), exporter()
    async with memory_engine.open(
        ":memory:", compact_model=model, embedder=embedder, compactor=compactor, probe=probe, mask=None
    ) as engine:
        thread = await history(engine)
        await thread.search(f"where is {KEY}")
        with suppress(CompactorFailed):
            await thread.compact()
    assert list(SECRETS) == leaked(*compactor.asked)
    assert list(SECRETS) == leaked(*embedder.asked)
    assert [KEY] == leaked(told(kept))


class Failing(Model):
    """Fails as providers do: its error quotes the key, and the request."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """Fail."""
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        ModelError("m", "authentication", f"Incorrect API key provided: {KEY}. You can find yours at example.org."),
        RuntimeError(f"401: authorization: bearer {KEY}"),
        ValueError(f"cannot connect to redis://app:{PASSWORD}@cache:6379"),
    ],
)
async def test_no_error_of_a_provider_brings_a_secret_into_the_log(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither into what is recorded, nor into what is raised, nor into the program's log with its tracebacks."""
    lines = Lines()
    logging.getLogger().addHandler(lines)
    probe, kept = exporter()
    try:
        async with memory_engine.open(":memory:", compact_model=Failing(error), probe=probe) as engine:
            thread = await history(engine)
            with pytest.raises(CompactorFailed) as raised:
                await thread.compact()
            recorded = [one.event async for one in thread.events() if isinstance(one.event, CompactionFailed)]
    finally:
        logging.getLogger().removeHandler(lines)
    assert [] == leaked(*(one.error for one in recorded), str(raised.value), *lines.lines, told(kept))
    assert len(recorded) == 1


async def test_a_probe_is_shown_no_error_with_a_secret() -> None:
    """A probe of one's own may write down an error: it gets one of the same name, with a text that may leave."""
    shown: list[tuple[str, str]] = []

    class Span:
        def __enter__(self) -> "Span":
            return self

        def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
            if error is not None:
                shown.append((type(error).__name__, str(error)))

        def say(self, said: object) -> None:
            """Nothing."""

    class Probe:
        def span(self, operation: str, said: object) -> Span:
            return Span()

        def correlation_id(self) -> str:
            return ""

    failing = Failing(ValueError(f"the password is {PASSWORD}"))
    async with memory_engine.open(":memory:", compact_model=failing, probe=Probe()) as engine:
        thread = await history(engine)
        with suppress(CompactorFailed):
            await thread.compact()
    assert ("ValueError", "the password is [secret:password]") in shown
    assert [] == leaked(*(text for _, text in shown))


async def test_a_model_inside_of_something_else_is_masked_too() -> None:
    """What learns facts and what judges have models of their own, which no `open` has seen."""
    model = Model("NONE")
    said = Said(text=TOLD, sources=("e1",))
    await ModelFacts(model).extract(Finished(task="t", said=(said,)))
    assert model.asked
    assert [] == leaked(*model.asked)
    await ModelFacts(MaskedModel(model, None)).extract(Finished(task="t", said=(said,)))
    assert list(SECRETS) == leaked(*model.asked)
