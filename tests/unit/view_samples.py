"""One of each event of the views, every field set: what the golden file holds of them."""

from functools import partial

from memory_engine import Event
from memory_engine import events as e
from memory_engine.core.events.delivery import RefusedFact
from memory_engine.views.checkpoints.events import ChannelValue, ChannelWrite, CheckpointName, ItemSpan
from memory_engine.views.checkpoints.pieces import Packed, PiecePlace, Quote
from memory_engine.views.items.events import ItemName, ItemUse
from memory_engine.views.layers.events import LayerLine
from memory_engine.views.patterns.events import Finding
from memory_engine.views.sessions.events import QuotedText, SharedState

USER = e.Destination("user", "u1", "acme")
AGENT = e.Destination("agent", "helper", "acme")
TAKEN_OUT = Finding("name", 9, 13, "[name]")
RULE = e.RuleReference("cap", {"at": 10}, {"flow": ["report"], "rows": {"gt": 3}})
CALL = e.PlaybookCall("query", {"metric": "users", "deep": {"n": 10**30}})
SCORE = e.PromotionScore("salience", 0.75, 0.5, "it says always", "embedded")
USAGE = e.Usage(10, 20, 0.5)
_PRICES = e.DocumentPassage("k2", text="Up by 3 %.", about="Prices > 2024", speaker="Ben", at_us=5)
PRICES = e.DocumentSplice(1, ("k1", "k1:1"), (_PRICES,))
NOTE = partial(e.RestoredChunk, type="note", retention="critical", category="memory", content="Paid.")
"""A chunk that an event brings; its ids are still to be given."""
PROACTIVE = e.ProactiveResult("weather", '{"city":"Oslo"}', "Rain.", "p1", 2)

VIEW_SAMPLES: tuple[Event, ...] = (
    e.ScratchpadWritten(content="Sales dip on Sundays.", flow="analyze", read=("1.1", "2.0"), cap=3, recalled=True),
    e.ScratchpadRemoved(chunk_ids=("1.1",), all=True),
    e.PreferenceUpdated(key="rows", value={"max": [1, 2.5, None, "é"]}, rule=RULE, kind="rows", origin="promotion",
                        reason="asked to", sources=("e1", "e2")),
    e.PreferenceRemoved(key="rows", reason="asked to"),
    e.BriefPinned(content="Ask before you pay.", sources=("1.0",), origin="tool", agent_id="helper"),
    e.BriefUnpinned(pin=3, reason="done"),
    e.ReportSaved(title="Q3", content=(e.TextPart("Up."), e.ImagePart("u")), flow="report"),
    e.PromotionDecided(snippet="1.1", content="Always show totals.", trigger="report_saved", scores=(SCORE,),
                       target="preferences", key="promoted:totals", reason="salience", destination=USER,
                       source_thread="t", sources=("e1",), noted=USER),
    e.FindingNoted(content="Sales dip on Sundays.", source_thread="t", sources=("e1",)),
    e.AgentMdUploaded(content="# House rules\n"),
    e.AgentMdPromoted(content="Always show totals.", reason="salience", source_thread="t", sources=("e1",)),
    e.AgentMdRemoved(lines=("1", "2"), reason="wrong"),
    e.FlowCompleted(flow_id="f1", flow_dact="compare", user_query="Compare the years.", slots={"years": [1, 2]},
                    tool_calls=(CALL,), outcome="A table."),
    e.FeedbackGiven(satisfied=True, flow_id="f1", content="Great!"),
    e.PlaybookPromoted(flow_id="f1", flow_dact="compare", user_query="Compare the years.", slots={"years": [1, 2]},
                       tool_calls=(CALL,), outcome="A table.", reason="feedback", source_thread="t", sources=("e1",),
                       destination=USER),
    e.PlaybookSaved(flow_dact="compare", user_query="Compare the years.", slots={"years": [1, 2]}, tool_calls=(CALL,),
                    outcome="A table.", reason="feedback", source_thread="t", sources=("e1",)),
    e.PlaybookRemoved(playbook_id="3", reason="stale"),
    e.CycleStarted(question="Why?", question_at=-1),
    e.ExchangeFinished(question="Why?", answer="Because.", short="So.", method="model", model="m", usage=USAGE, cycle=2,
                       answer_at=-1, failure="timeout"),
    e.SummaryRolled(content="They talked.", covers=(3, 5), base=7, forgotten=1, exchanges=12, method="model",
                    compressed=True, insights=("1.1",), insights_upto=4, model="m", usage=USAGE, failure="refused"),
    e.ToolResultCached(tool="weather", parameters='{"city":"Oslo"}', result="Rain.", duration=3, call_id="c1",
                       proactive=True),
    e.ToolCacheHit(key="k"),
    e.ToolCacheDropped(keys=("k",), all=True),
    e.ScreenInjected(content="The order page.", results=(PROACTIVE,), session_id="s1", claim="c"),
    e.MemoryAppended(layer="procedural", content="Run the tests.", key="k", condition="code changed",
                     metadata={"n": 1, "deep": [True]}, entry_id="m1", timestamp_us=-1, capacity=5, recalled=True,
                     source_thread="t", sources=("e1",), drawn_from=(1,)),
    e.MemoryRemoved(layer="episodic", seqs=(1, 2), reason="wrong"),
    e.MemoryCompacted(layer="episodic", upto=9, count=4, first=2, drawn_at=12, lines=(LayerLine("Many runs.", (2, 9)),),
                      left_out=2, method="model", model="m", usage=USAGE, failure="refused"),
    e.MemoryCleared(layers=("working", "episodic"), reason="asked to"),
    e.MemoryGranted(grantee=AGENT, layers=("semantic",), write=True),
    e.MemoryRevoked(grantee=AGENT, reason="done"),
    e.MemoryShared(destination=AGENT, layer="semantic", content="Java 21", key="jdk", condition="c", metadata={"n": 1},
                   entry_id="m1", timestamp_us=5, capacity=5, recalled=True, source_thread="t", sources=("e1",)),
    e.MemoryRecalled(content="The build needs Java 21.", query="jdk", sources=("e1",)),
    e.ResultsOffloaded(chunk_ids=("3.0",), keep_chars=10),
    e.FactsDelivered(facts=("0000000001.0",), refused=(RefusedFact("0000000002.0", "it is archived"),)),
    e.DocumentAdded(document_id="/a/b.md", title="Prices", splices=(PRICES,), format="markdown", source="/a/b.md",
                    digest="d1", author="Ann", date_us=-1, channel="#sales", thread="<m1@x>", metadata={"to": "é"},
                    part=2, parts=3),
    e.DocumentRemoved(document_id="/a/b.md", seqs=(1, 2), reason="stale"),
    e.MemoryFileWritten(path="notes/jdk.md", content="Java 21\n", file_id="f1", edit="insert", drawn_from=(1, 2),
                        claim="c1"),
    e.MemoryFilesMoved(old_paths=("a.md",), new_paths=("b/a.md",), claim="c1"),
    e.MemoryFilesDeleted(paths=("a.md",), file_ids=("f1",), claim="c1"),
    e.WorkspaceRecorded(changes=(e.WorkspaceChange("src/a.py", "d1", 9, True, "print(1)\n"),
                                 e.WorkspaceChange("b.bin", "d2", 2, data="//4="),
                                 e.WorkspaceChange("c.py", "d1", 9, held_at=1)), part=1, parts=2, claim="c1"),
    e.ItemPut(namespace=("users", "ann"), key="k1", value={"text": "Java 21", "deep": [1, None]}, index=("text",),
              created_us=5, ttl_us=6),
    e.ItemsDeleted(items=(ItemName(("users", "ann"), "k1"),), reason="asked to"),
    e.ItemsUsed(items=(ItemUse(("users", "ann"), "k1", 3, 6),)),
    e.CheckpointSaved(id="c1", state=Packed("json", ("{}",)), namespace="sub", parent="c0", metadata='{"step":1}',
                      values=(ChannelValue("messages", "1", spans=(ItemSpan(1, 4), ItemSpan(0, 2))),
                              ChannelValue("topic", "1", value=Packed("msgpack", ("oWE=", PiecePlace(3, 0)))),
                              ChannelValue("plan", "1", seq=2)),
                      items=(PiecePlace(3, 1), PiecePlace(0, 0)), pieces=(Quote("gQ==", -1, 7, "oWE="), "oWE=")),
    e.CheckpointWritten(id="c1", task_id="t1", namespace="sub", task_path="~pull, node",
                        writes=(ChannelWrite("messages", 0, Packed("msgpack", (PiecePlace(0, 0),))),),
                        pieces=("oWE=",)),
    e.CheckpointsDropped(checkpoints=(CheckpointName("sub", "c1"),)),
    e.SessionBegun(timestamp=1.5, state='{"n":1}', shared=(SharedState(AGENT, "shop", '{"rate":2}', "t"),)),
    e.SessionEntryKept(id="e1", entry='{"content":{"parts":[{"text":""}]}}', timestamp=1.5, invocation="i1", messages=1,
                       quoted=(QuotedText("content/parts/0/text", -1, 7),), state='{"n":1}',
                       shared=(SharedState(AGENT, "shop", '{"rate":2}', "t"),)),
    e.SharedStateSet(app="shop", state='{"rate":2}', source_thread="t"),
    e.SessionItemAdded(head='{"role":"user","content":"', tail='"}', back=-1, is_cut=True),
    e.SessionItemRemoved(seq=2, claim="c1"),
    e.StatementsCompared(older=1, newer=2, verdict="replaced", older_n=1, newer_n=2, model="m", prompt=1, usage=USAGE,
                         failure="truncated", by="Ada"),
    e.PatternsJoined(industry="retail", secret="s3", min_tenants=2, by="ann"),
    e.PatternsLeft(industry="retail", by="ann", reason="sold"),
    e.PatternProposed(industry="retail", line=3, source=3, text="Sales of [name] dip.", found=(TAKEN_OUT,),
                      cautions=("read it",), by="ann"),
    e.PatternApproved(proposal=4, industry="retail", share="a1b2", text="Sales of [name] dip.", by="ann",
                      min_tenants=2),
    e.PatternRejected(proposal=4, by="ann", reason="too much"),
    e.PatternRevoked(industry="retail", share="a1b2", approvals=(5,), by="ann", reason="stale"),
    e.PatternPublished(share="a1b2", text="Sales of [name] dip.", min_tenants=2),
    e.PatternWithdrawn(share="a1b2"),
    e.EventSkipped(skipped_type="user_message", skipped_id="e1", reason="asked to"),
)  # fmt: skip
