"""What callers easily give wrongly, and what `InvalidArgument` says of it: more of the mistakes of its kind."""

import memory_engine
from memory_engine import AgentLifecycle, Plugin, RecordedEvent, Reduction
from memory_engine.llm import Completion, LanguageModel
from tests.mistakes import Place, Row, opened


class WithoutApply:
    """A projection that folds nothing."""

    name, version, mode, row = "folds nothing", 1, "inline", str


def without_apply(_: Place) -> object:
    """A projection that lacks its one method."""
    plugin = Plugin("p")
    plugin.projection(WithoutApply())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return opened(plugins=[plugin])


class _Applied(WithoutApply):
    apply = None


def apply_of_none(_: Place) -> object:
    """A projection whose method is none."""
    plugin = Plugin("p")
    plugin.projection(_Applied())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return opened(plugins=[plugin])


def named_in_a_list() -> object:
    """A reducer listed by the name of its event."""
    entry = ("user_message", lambda *_: Reduction())
    return opened(plugins=[Plugin("p", reducers=[entry])])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def named_event() -> Plugin:
    """An event listed by its name."""
    return Plugin("p", events=["user_message"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


class _Model:
    async def complete(self, *_: object, **__: object) -> Completion:
        """Text."""
        return Completion(text="x", model="unclosable")


class _Unclosable(_Model):
    name = "unclosable"


def unclosable() -> LanguageModel:
    """A model whose connections nobody can close."""
    return _Unclosable()  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


class _Unnamed(_Model):
    name: str  # declared, and not there

    async def aclose(self) -> None:
        """Nothing to close."""


def unnamed() -> LanguageModel:
    """A model that no event could name."""
    return _Unnamed()


def lifecycle(p: Place) -> AgentLifecycle:
    """An agent's."""
    return AgentLifecycle(p.engine, p.thread, agent_id="a")


async def observe_later(_: RecordedEvent) -> None:
    """Nobody awaits it."""


class ObserveLater:
    """Nobody awaits its call."""

    async def __call__(self, _: RecordedEvent) -> None:
        """Nothing."""


INSTEAD: dict[str, tuple[str, Row]] = {
    "a projection without apply": ("it has no apply", without_apply),
    "a projection whose apply is no function": ("it has no method `apply`", apply_of_none),
    "a reducer by the name of an event": ("add it by `@plugin.reducer", lambda _: named_in_a_list()),
    "a reducer of a name": ("give the event's class", lambda _: Plugin("p").reducer("user_message")(str)),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "a name among the events": ("derived from memory_engine.Event", lambda _: opened(plugins=[named_event()])),
    "a model without aclose": ("has `aclose`", lambda _: memory_engine.open(compact_model=unclosable()).__aenter__()),
    "a memory model without a name": ("has `name`", lambda _: memory_engine.open(memory_model=unnamed()).__aenter__()),
    "an observer that awaits": ("without async", lambda p: p.engine.observe(observe_later)),  # type: ignore[arg-type]
    "an observer whose call awaits": ("without async", lambda p: p.engine.observe(ObserveLater())),  # type: ignore[arg-type]
    "a task of nothing": ("task", lambda p: lifecycle(p).start(None)),  # type: ignore[arg-type]
    "a run of nothing": ("task", lambda p: lifecycle(p).run(7).__aenter__()),  # type: ignore[arg-type]
    "an agent without a thread": ("thread", lambda p: AgentLifecycle(p.engine, None, agent_id="a")),  # type: ignore[arg-type]
    "an agent without an engine": ("engine", lambda p: AgentLifecycle("x.db", p.thread, agent_id="a")),  # type: ignore[arg-type]
}
"""What `InvalidArgument` says, by what is given wrongly: more of the mistakes of its kind."""
