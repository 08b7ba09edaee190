"""The built-in reducers, family by family: what each event does to a state."""

import msgspec
import pytest

from memory_engine import errors
from memory_engine import events as e
from memory_engine.core.chunks import REDACTED, Category, Chunk, ChunkType, Retention, outdated_instructions
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.forgetting import WITHHELD
from memory_engine.core.operations import Add, BatchReplace, Update
from memory_engine.events import Event
from memory_engine.testing import Outcome, given

HELLO = e.UserMessage(content="Hello")
LIST = e.TodoSet(items=(e.TodoItem("a", "milk"), e.TodoItem("b", "eggs")))


def summary(*covers: str, sources: tuple[str, ...] = (), text: str = "In short.") -> e.CompactionCompleted:
    """A compaction of these chunks to one line."""
    line = SummaryLine("current_state", text, sources)
    replaced = (e.Replacement(covers, (line,)),)
    return e.CompactionCompleted(compaction_id="k", trigger="manual", replacements=replaced, compactor="c")


def only(outcome: Outcome) -> Chunk:
    """The one new chunk."""
    assert 1 == len(outcome.then().chunks)
    return outcome.chunks[0]


# What is said, what is answered: one chunk at the end of the working flow.

BATCH = Retention.BATCH_COMPRESSIBLE
APPENDED: list[tuple[Event, ChunkType, Retention, str, str]] = [
    (e.UserMessage(content="a", name="Ann"), ChunkType.USER_MESSAGE, BATCH, "Ann", ""),
    (e.UserMessage(content="a", origin="tool"), ChunkType.OBSERVATION, BATCH, "", ""),
    (e.UserMessage(content="a", origin="client"), ChunkType.NOTICE, BATCH, "", ""),
    (e.UserMessage(content="a", origin="summary"), ChunkType.FOREIGN_SUMMARY, BATCH, "", ""),
    (e.ParentAgentMessage(content="a", agent_id="p"), ChunkType.PARENT_MESSAGE, BATCH, "p", ""),
    (e.LlmTextResponse(content="a", name="bot"), ChunkType.AGENT_RESPONSE, BATCH, "bot", ""),
    (e.LlmThinking(content="a", signature="s"), ChunkType.THINKING, Retention.DISPOSABLE, "", "s"),
    (e.LlmSubagentMessage(content="a", agent_id="b"), ChunkType.SUBAGENT_MESSAGE, BATCH, "b", ""),
    (e.LlmClarification(content="a"), ChunkType.CLARIFICATION, BATCH, "", ""),
    (e.LlmClarification(content="a", approval=True), ChunkType.CLARIFICATION, BATCH, "", "approval"),
    (e.ToolResult(call_id="c", content="a", name="t"), ChunkType.ACTION_RESULT, BATCH, "t", ""),
    (e.SkillResult(call_id="c", content="a", name="t"), ChunkType.ACTION_RESULT, BATCH, "t", ""),
    (e.SubagentResult(call_id="c", content="a", agent_id="b"), ChunkType.ACTION_RESULT, BATCH, "b", ""),
    (e.ToolError(call_id="c", content="a", name="t"), ChunkType.ERROR, BATCH, "t", "failed"),
    (e.SkillError(call_id="c", content="a", name="t"), ChunkType.ERROR, BATCH, "t", "failed"),
    (e.SubagentError(call_id="c", content="a", agent_id="b"), ChunkType.ERROR, BATCH, "b", "failed"),
    (e.SystemFailure(content="a", code="E"), ChunkType.ERROR, BATCH, "E", "failed"),
    (e.ExternalInject(content="a", source="mail"), ChunkType.EXTERNAL, BATCH, "mail", ""),
    (e.ExternalTimer(content="a", timer_id="t"), ChunkType.EXTERNAL, Retention.DISPOSABLE, "t", ""),
    (e.ExecutionRetry(content="a"), ChunkType.EXECUTION, Retention.DISPOSABLE, "", "retry"),
]  # fmt: skip


@pytest.mark.parametrize(("event", "type_", "retention", "label", "status"), APPENDED)
def test_it_joins_the_working_flow(event: Event, type_: str, retention: Retention, label: str, status: str) -> None:
    """The content becomes one chunk at the end, of its type, with its retention, label and status."""
    outcome = given(HELLO).when(event).then(operations=["ADD 2.0"], chunk_texts=["a"], state=["Hello", "a"])
    chunk = only(outcome)
    assert (type_, retention, label, status) == (chunk.type, chunk.retention, chunk.label, chunk.status)
    assert Category.WORKING_FLOW is chunk.category


def test_parallel_calls_are_one_chunk() -> None:
    """All calls of a response stand together, with the text that came along."""
    calls = (e.ToolCall.create("c1", "f", {"x": 1}), e.ToolCall("c2", "g"))
    chunk = only(given().when(e.LlmToolCall(calls=calls, content="Let me see.", response_id="r")))
    assert (calls, "Let me see.", "r") == (chunk.calls, chunk.text, chunk.response_id)


def test_a_skill_is_called_as_a_tool_is() -> None:
    """A skill call opens a call under its own id."""
    chunk = only(given().when(e.LlmSkillCall(call_id="c", name="plan", arguments='{"a":1}')))
    assert (e.ToolCall("c", "plan", '{"a":1}'),) == chunk.calls


def test_spawning_opens_a_long_running_call() -> None:
    """A sub-agent's task is a call that may be answered much later, in pieces."""
    chunk = only(given().when(e.LlmSubagentSpawn(call_id="c", agent_id="a", task='say "é"')))
    assert (
        e.ToolCall("c", "spawn_subagent", '{"agent_id":"a","task":"say \\"é\\""}', long_running=True),
    ) == chunk.calls


@pytest.mark.parametrize("result", [e.ToolResult, e.SkillResult])
@pytest.mark.parametrize("final", [True, False])
def test_a_result_answers_its_call(result: type[e.ToolResult | e.SkillResult], final: bool) -> None:
    """A result names its call, and whether it is the last word on it."""
    chunk = only(given().when(result(call_id="c", content="x", final=final)))
    assert ("c", final) == (chunk.call_id, chunk.final)


def test_a_system_failure_answers_no_call() -> None:
    """An error around the agent stands for itself."""
    assert "" == only(given().when(e.SystemFailure(content="No network."))).call_id


@pytest.mark.parametrize(
    ("event", "text"), [(e.ExternalTimer(), "timer"), (e.ExecutionRetry(attempt=3), "retry, attempt 3")]
)
def test_without_content_it_says_what_it_is(event: Event, text: str) -> None:
    """An event that needs no content still leaves a line."""
    given().when(event).then(chunk_texts=[text])


# Tasks.


def test_a_goal_stays_in_view() -> None:
    """A task's goal is CRITICAL, apart from the working flow, and bears the name of its task."""
    outcome = given(HELLO).when(e.TaskStarted(goal="Win.", task_id="t")).then(state=["Hello", "Win."])
    chunk = only(outcome)
    assert (Retention.CRITICAL, Category.TASK, "task:t", "t", "started") == (
        chunk.retention, chunk.category, chunk.name, chunk.label, chunk.status
    )  # fmt: skip


def test_a_new_task_takes_the_place_of_the_old() -> None:
    """Without an id there is one task at a time: the new goal stands where the first one stood."""
    scenario = given(e.TaskStarted(goal="Win."), HELLO)
    scenario.when(e.TaskStarted(goal="Draw.")).then(operations=["UPDATE 1.0 -> 3.0"], state=["Draw.", "Hello"])


ENDS: list[tuple[Event, str]] = [
    (e.TaskCompleted(content="3:0"), "completed"),
    (e.TaskAbandoned(content="3:0"), "abandoned"),
    (e.TaskTerminated(content="3:0"), "terminated"),
]


@pytest.mark.parametrize(("end", "status"), ENDS)
def test_an_ended_task_leaves_one_line(end: Event, status: str) -> None:
    """The goal goes, and how it ended joins the working flow, to be compacted in time."""
    outcome = given(e.TaskStarted(goal="Win."), HELLO).when(end)
    outcome.then(operations=["DELETE 1.0", "ADD 3.0"], state=["Hello", f"Task {status}: Win.: 3:0"])
    assert (status, True) == (only(outcome).status, only(outcome).is_compactable)


def test_a_task_that_never_began_can_end() -> None:
    """An end that names no task, where none runs, is only a line."""
    given().when(e.TaskCompleted()).then(operations=["ADD 1.0"], state=["Task completed"])


TWO = (e.TaskStarted(goal="Win.", task_id="a"), e.TaskStarted(goal="Draw.", task_id="b"))


def test_two_tasks_at_once_are_two() -> None:
    """Each has its goal, and ends under its own id with its own goal; begun again, it has another goal."""
    scenario = given(*TWO)
    assert ["Win.", "Draw."] == [chunk.text for chunk in scenario.state.chunks()]
    ended = scenario.when(e.TaskCompleted(content="3:0", task_id="a"))
    ended.then(operations=["DELETE 1.0", "ADD 3.0"], state=["Draw.", "Task completed: Win.: 3:0"])
    again = scenario.when(e.TaskStarted(goal="Win twice.", task_id="a"))
    again.then(operations=["UPDATE 1.0 -> 3.0"], state=["Win twice.", "Draw."])
    beside = scenario.when(e.TaskStarted(goal="Have fun."))
    beside.then(operations=["ADD 3.0"], state=["Win.", "Draw.", "Have fun."])


@pytest.mark.parametrize(("end", "status"), ENDS)
def test_an_end_without_an_id_is_that_of_the_one_task(end: Event, status: str) -> None:
    """Of the one without an id, else of the only one; where several run and none is meant, it is refused."""
    given(TWO[0]).when(end).then(state=[f"Task {status}: Win.: 3:0"])
    given(*TWO, e.TaskStarted(goal="Fun.")).when(end).then(state=["Win.", "Draw.", f"Task {status}: Fun.: 3:0"])
    error = given(*TWO).when(end).then_raises(errors.UnknownTask)
    assert "2 tasks run ('a', 'b'): say which with task_id" == str(error)


@pytest.mark.parametrize("kind", [e.TaskCompleted, e.TaskAbandoned, e.TaskTerminated])
def test_a_task_that_does_not_run_does_not_end(kind: type[e.TaskCompleted]) -> None:
    """It is refused by name; a lenient end, whose beginning may have been forgotten, leaves its line."""
    refused = given(*TWO).when(kind(task_id="nope"))
    assert errors.UnknownTask("nope", ("a", "b")) == refused.then_raises(errors.UnknownTask)
    assert "'nope' runs; 'a', 'b' do; nothing was written" in str(refused.error)
    outcome = given(*TWO).when(kind(content="so", task_id="nope", lenient=True))
    assert ["Win.", "Draw."] == [chunk.text for chunk in outcome.then().state.chunks()][:2]
    assert "so" in only(outcome).text


def test_a_task_of_version_1_is_ended_by_its_id() -> None:
    """All tasks of an older log bear one name: what runs there ends under its own id and under no other."""
    scenario = given(e.TaskStarted(goal="Win.", task_id="a", single=True))
    assert "task" == only(given().when(e.TaskStarted(goal="Win.", task_id="a", single=True))).name
    scenario.when(e.TaskStarted(goal="Draw.", task_id="a")).then(operations=["UPDATE 1.0 -> 2.0"], state=["Draw."])
    scenario.when(e.TaskStarted(goal="Draw.", task_id="b")).then(state=["Win.", "Draw."])
    scenario.when(e.TaskCompleted(task_id="a")).then(state=["Task completed: Win."])
    scenario.when(e.TaskCompleted(task_id="b")).then_raises(errors.UnknownTask)
    scenario.when(e.TaskCompleted(task_id="b", single=True)).then(state=["Task completed: Win."])
    scenario.when(e.TaskStarted(goal="Draw.", task_id="b", single=True)).then(state=["Draw."])


# To-do lists.


def test_a_to_do_list_is_a_container() -> None:
    """Each item is a child under its own name, and none of it is ever compacted."""
    outcome = given().when(LIST).then(operations=["ADD 1.0", "ADD 1.1", "ADD 1.2"], state=["", "milk", "eggs"])
    assert [("todos", True), ("todo:a", False), ("todo:b", False)] == [(c.name, c.is_container) for c in outcome.chunks]
    assert {Retention.CRITICAL} == {c.retention for c in outcome.chunks}


def test_a_list_set_anew_replaces_the_old() -> None:
    """Nothing of the former list is left."""
    new = e.TodoSet(items=(e.TodoItem("c", "bread"),))
    given(LIST, HELLO).when(new).then(operations=["DELETE 1.0", "ADD 3.0", "ADD 3.1"], state=["Hello", "", "bread"])


def test_an_empty_list_is_no_list() -> None:
    """Setting no items removes the list; there is nothing to remove the second time."""
    given(LIST).when(e.TodoSet(items=())).then(operations=["DELETE 1.0"], state=[])
    given().when(e.TodoSet(items=())).then(operations=[], state=[])


def test_an_item_is_ticked() -> None:
    """A completed item is a new version in the old place."""
    outcome = given(LIST).when(e.TodoCompleted(id="a"))
    outcome.then(operations=["UPDATE 1.1 -> 2.0"], state=["", "milk", "eggs"])
    assert ("completed", ("1.1",)) == (only(outcome).status, only(outcome).parent_ids)


def test_an_update_changes_what_is_given() -> None:
    """An absent text or status stays as it is."""
    scenario = given(LIST, e.TodoUpdated(id="a", status="in_progress"))
    renamed = only(scenario.when(e.TodoUpdated(id="a", text="oat milk")))
    assert ("oat milk", "in_progress") == (renamed.text, renamed.status)
    emptied = only(scenario.when(e.TodoUpdated(id="a", text="")))
    assert ("", "in_progress") == (emptied.text, emptied.status)


def test_an_expanded_item_is_followed_by_its_parts() -> None:
    """New items stand in order directly after the one that was split."""
    parts = (e.TodoItem("c", "pan"), e.TodoItem("d", "oil"))
    given(LIST).when(e.TodoExpanded(id="a", items=parts)).then(
        operations=[Add("2.0", "1.0", after="1.1"), Add("2.1", "1.0", after="2.0")],
        state=["", "milk", "pan", "oil", "eggs"],
    )


def test_expanding_what_is_gone_is_refused() -> None:
    """Leniently, the parts go to the end; without a list they are the list."""
    parts = (e.TodoItem("c", "pan"), e.TodoItem("d", "oil"))
    given(LIST).when(e.TodoExpanded(id="?", items=parts)).then_raises(errors.UnknownItem)
    lenient = e.TodoExpanded(id="?", items=parts, lenient=True)
    given(LIST).when(lenient).then(state=["", "milk", "eggs", "pan", "oil"])
    given().when(lenient).then(state=["", "pan", "oil"])


def test_expanding_knows_items_that_are_there() -> None:
    """An item whose id the list has is not added a second time."""
    given(LIST).when(e.TodoExpanded(id="a", items=(e.TodoItem("b", "eggs"),))).then(operations=[])


MISSED = [
    e.TodoCompleted(id="?"),
    e.TodoUpdated(id="?", text="x"),
    e.TodoDeleted(id="?"),
    e.TodoExpanded(id="?", items=()),
]


@pytest.mark.parametrize("event", MISSED)
def test_an_item_that_is_not_there_is_refused(event: Event) -> None:
    """A model may name what never was: the error lists the items; a lenient event changes nothing."""
    found = given(LIST).when(event).then_raises(errors.UnknownItem)
    assert "the to-do list has no item '?'; it has 'a', 'b'" == str(found)
    assert "there is none" in str(given().when(event).then_raises(errors.UnknownItem))
    lenient = msgspec.structs.replace(event, lenient=True)
    given(LIST).when(lenient).then(operations=[], state=["", "milk", "eggs"])


def test_an_item_is_deleted() -> None:
    """It goes, and its name with it."""
    outcome = given(LIST).when(e.TodoDeleted(id="a")).then(operations=["DELETE 1.1"], state=["", "eggs"])
    assert None is outcome.state.named("todo:a")


# Memory.


def test_a_thread_begins_with_its_chunks() -> None:
    """Each seed is a chunk of its type and retention; `system` ones are instructions."""
    seeds = (e.InitialChunk("Be kind."), e.InitialChunk("Hi", "user_message", "compressible", "greeting"))
    outcome = given().when(e.ThreadSeeded(chunks=seeds)).then(state=["Be kind.", "Hi"])
    assert [
        (Category.SYSTEM, Retention.CRITICAL, ""),
        (Category.WORKING_FLOW, Retention.COMPRESSIBLE, "greeting"),
    ] == [(c.category, c.retention, c.name) for c in outcome.chunks]


def test_a_seed_of_no_known_retention_is_refused() -> None:
    """A wrong retention is an error that names the reducer."""
    seeds = (e.InitialChunk("x", retention="for ever"),)
    error = given().when(e.ThreadSeeded(chunks=seeds)).then_raises(errors.ReducerError)
    assert "for ever" in str(error)


def test_a_chunk_is_marked_critical() -> None:
    """A new version takes its place, with its text and lineage; what is CRITICAL is let be."""
    scenario = given(HELLO, e.TaskStarted(goal="Win."))
    outcome = scenario.when(e.MemoryMarkCritical(chunk_ids=("1.0", "2.0", "1.0")))
    outcome.then(operations=["UPDATE 1.0 -> 3.0"], state=["Hello", "Win."])
    assert (Retention.CRITICAL, ("1.0",)) == (only(outcome).retention, only(outcome).parent_ids)


def test_a_chunk_that_is_not_there_is_not_marked() -> None:
    """The error names it; leniently, it is passed over."""
    scenario = given(HELLO)
    error = scenario.when(e.MemoryMarkCritical(chunk_ids=("1.0", "99.9"))).then_raises(errors.UnknownChunk)
    assert "MARK CRITICAL: chunk '99.9' is not in the state" == str(error)
    lenient = e.MemoryMarkCritical(chunk_ids=("1.0", "99.9"), lenient=True)
    scenario.when(lenient).then(operations=["UPDATE 1.0 -> 2.0"])


@pytest.mark.parametrize("what", [e.MemoryForget(chunk_ids=("1.0",)), e.MemoryForget(seqs=(1,))])
def test_what_is_forgotten_goes(what: Event) -> None:
    """By chunk or by event, and a marked version of it goes as well."""
    given(HELLO, e.UserMessage(content="Bye")).when(what).then(state=["Bye"])
    given(HELLO, e.MemoryMarkCritical(chunk_ids=("1.0",))).when(what).then(operations=["DELETE 2.0"], state=[])


def test_forgetting_nothing_changes_nothing() -> None:
    """Ids that are not in the state are let be."""
    given(HELLO).when(e.MemoryForget(chunk_ids=("9.9", "", "x"), seqs=(7,))).then(operations=[], state=["Hello"])


def test_forgetting_reaches_items_of_a_list() -> None:
    """Items that came of a forgotten event go, in whatever version they are now."""
    parts = (e.TodoItem("c", "secret"),)
    scenario = given(LIST, e.TodoExpanded(id="a", items=parts))
    scenario.when(e.MemoryForget(seqs=(2,))).then(state=["", "milk", "eggs"])
    ticked = given(LIST, e.TodoExpanded(id="a", items=parts), e.TodoCompleted(id="c"))
    ticked.when(e.MemoryForget(seqs=(2,))).then(state=["", "milk", "eggs"])


def test_forgetting_reaches_items_changed_many_times() -> None:
    """However often an item was updated, it goes with the event that brought it."""
    changes = (e.TodoUpdated(id="c", status="in_progress"), e.TodoUpdated(id="c", status="completed"))
    scenario = given(LIST, e.TodoExpanded(id="a", items=(e.TodoItem("c", "secret"),)), *changes)
    scenario.when(e.MemoryForget(seqs=(2,))).then(state=["", "milk", "eggs"])


def test_a_summary_loses_the_lines_that_cite_the_forgotten() -> None:
    """Other lines stay; the summary says that it was redacted."""
    lines = (SummaryLine("current_state", "of one", ("1.0",)), SummaryLine("next_steps", "of two", ("2.0",)))
    completed = e.CompactionCompleted(
        compaction_id="k", trigger="auto", compactor="c", replacements=(e.Replacement(("1.0", "2.0"), lines),)
    )
    outcome = given(HELLO, e.UserMessage(content="Bye"), completed).when(e.MemoryForget(chunk_ids=("1.0",)))
    outcome.then(operations=["UPDATE 3.0 -> 4.0"], state=["of two"])
    assert REDACTED == only(outcome).status


def test_a_summary_that_cites_nothing_is_withheld() -> None:
    """A line without sources may hold anything that the summary covers."""
    scenario = given(HELLO, e.UserMessage(content="Bye"), summary("1.0", "2.0"))
    scenario.when(e.MemoryForget(seqs=(2,))).then(state=[WITHHELD])


@pytest.mark.parametrize("source", ["", "x", "x.y", "9" * 5000, "²"])
def test_a_summary_with_odd_sources_can_be_forgotten(source: str) -> None:
    """Whatever a compactor gave for a source, forgetting works and keeps what it may."""
    scenario = given(HELLO, e.UserMessage(content="Bye"), summary("1.0", sources=(source,)))
    scenario.when(e.MemoryForget(chunk_ids=("2.0",))).then(state=["In short."])


# Compactions.


def test_a_compaction_stands_where_its_chunks_stood() -> None:
    """The recorded summary replaces them; it is memory, and may be compacted again."""
    scenario = given(HELLO, e.UserMessage(content="More"), e.UserMessage(content="Now"))
    outcome = scenario.when(summary("1.0", "2.0", sources=("1.0",)))
    outcome.then(operations=[BatchReplace(("1.0", "2.0"), ("4.0",))], state=["In short.", "Now"])
    chunk = only(outcome)
    assert (Category.MEMORY, Retention.COMPRESSIBLE, ("1.0", "2.0")) == (
        chunk.category,
        chunk.retention,
        chunk.parent_ids,
    )


def test_a_replacement_without_lines_drops() -> None:
    """DISPOSABLE chunks leave nothing behind."""
    dropped = e.CompactionCompleted(
        compaction_id="k", trigger="auto", compactor="drop", replacements=(e.Replacement(("1.0",)),)
    )
    given(e.LlmThinking(content="Hm."), HELLO).when(dropped).then(operations=[BatchReplace(("1.0",))], state=["Hello"])


def test_what_is_critical_is_never_compacted() -> None:
    """A result that covers a CRITICAL chunk is refused whole."""
    scenario = given(HELLO, e.TaskStarted(goal="Win."))
    outcome = scenario.when(summary("1.0", "2.0"))
    outcome.then_raises(errors.CriticalChunk)
    assert ["Hello", "Win."] == [chunk.text for chunk in outcome.state.chunks()]


STILL: list[Event] = [
    e.CompactionStarted(compaction_id="k", trigger="auto", chunk_ids=("1.0",), compactor="c", owner="o", deadline_us=1),
    e.CompactionFailed(compaction_id="k", compactor="c", reason="raised"),
    e.CompactionAbandoned(compaction_id="k", reason="cancelled"),
    e.ExecutionPause(content="wait"),
    e.ExecutionResume(content="go"),
    e.SessionStarted(session_id="s"),
]


@pytest.mark.parametrize("event", STILL, ids=[event.event_type for event in STILL])
def test_it_changes_no_state(event: Event) -> None:
    """Some events concern the log and the queue only."""
    given(HELLO).when(event).then(operations=[], chunk_texts=[], state=["Hello"])


# Surroundings and sessions.


def test_injected_instructions_are_a_system_chunk() -> None:
    """Under the source `system` it is instructions; its retention is the sender's."""
    chunk = only(given().when(e.ExternalInject(content="Be kind.", source="system", retention="critical")))
    assert (ChunkType.SYSTEM, Category.SYSTEM, Retention.CRITICAL) == (
        chunk.type,
        chunk.category,
        chunk.retention,
    )


def test_the_environment_is_as_it_is_now() -> None:
    """A change under a known key replaces that one and no other."""
    rain, wind = (
        e.EnvironmentChange(content="rain", key="sky"),
        e.EnvironmentChange(content="wind", key="air"),
    )
    scenario = given(rain, wind)
    scenario.when(e.EnvironmentChange(content="sun", key="sky")).then(
        operations=[Update("1.0", "3.0")], state=["sun", "wind"]
    )


def test_changes_without_a_key_stand_for_themselves() -> None:
    """Side by side, and beside those with keys; the sixteen newest, since a session may never end."""
    rain, wind = e.EnvironmentChange(content="rain"), e.EnvironmentChange(content="wind")
    scenario = given(rain, e.EnvironmentChange(content="dark", key="light"))
    scenario.when(wind).then(operations=["ADD 3.0"], state=["rain", "dark", "wind"])
    scenario.when(e.EnvironmentChange(content="sun", single=True)).then(operations=["UPDATE 1.0 -> 3.0"])
    many = given(*(e.EnvironmentChange(content=str(n)) for n in range(20)))
    assert [str(n) for n in range(4, 20)] == [chunk.text for chunk in many.state.chunks()]


def test_a_session_begins_with_its_own_instructions() -> None:
    """They stand where those of the session before stood; other instructions stay; none are as before."""
    seeded = e.ThreadSeeded(chunks=(e.InitialChunk("Be kind."),))
    injected = e.ExternalInject(content="Be quick.", source="system", retention="critical")
    scenario = given(seeded, e.SessionStarted(content="Monday.", session_id="1"), injected, HELLO)
    outcome = scenario.when(e.SessionStarted(content="Tuesday.", session_id="2"))
    outcome.then(operations=["UPDATE 2.0 -> 5.0"], state=["Be kind.", "Tuesday.", "Be quick.", "Hello"])
    assert ("2", "session:instructions") == (only(outcome).label, only(outcome).name)
    scenario.when(e.SessionStarted(session_id="2")).then(operations=[])


def test_a_new_session_ends_the_instructions_of_an_older_log() -> None:
    """Version 1 let them stand side by side; seeded and injected ones are told from them and stay."""
    seeded = e.ThreadSeeded(chunks=(e.InitialChunk("Be kind."),))
    injected = e.ExternalInject(content="Be quick.", source="system", retention="critical")
    older = [e.SessionStarted(content=str(n), session_id=named, beside=True) for n, named in enumerate(("", "s", ""))]
    scenario = given(seeded, *older, injected)
    assert ["Be kind.", "0", "1", "2", "Be quick."] == [chunk.text for chunk in scenario.state.chunks()]
    assert {"2.0", "3.0"} == outdated_instructions(scenario.state.chunks())
    outcome = scenario.when(e.SessionStarted(content="now"))
    outcome.then(operations=["UPDATE 2.0 -> 6.0", "DELETE 3.0", "DELETE 4.0"], state=["Be kind.", "now", "Be quick."])
    assert frozenset() == outdated_instructions(outcome.state.chunks())


def test_a_sessions_instructions_stay() -> None:
    """They are CRITICAL and outlive the session, since the log goes on."""
    started = e.SessionStarted(content="Be kind.", session_id="s")
    given(started).when(e.SessionEnded()).then(operations=[], state=["Be kind."])


def test_ephemeral_chunks_go_with_the_session() -> None:
    """The environment and what was injected for the session; nothing else."""
    note = e.ExternalInject(content="note", retention="ephemeral")
    scenario = given(HELLO, e.EnvironmentChange(content="rain", key="sky"), note, LIST)
    scenario.when(e.SessionEnded()).then(operations=["DELETE 2.0", "DELETE 3.0"], state=["Hello", "", "milk", "eggs"])
