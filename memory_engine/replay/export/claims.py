"""A file's claims about its thread's kind and owner, and the claims that the importer allows.

Hashes cover the events, and from version 2 of the format on the header, but whoever writes a file chooses both: only
the importer knows whose thread a file may become.
"""

from collections.abc import Collection, Mapping
from typing import Literal

from attrs import frozen

from memory_engine.core.arguments import checked_list, checked_text
from memory_engine.core.threads import CompactionPolicy, ThreadRecord
from memory_engine.errors import InvalidArgument, InvalidPolicy, ScopeNotAllowed, ThreadDiffers

ImportScopes = Literal["as given", "as exported"]
"""Whether a file may say only what the other arguments allow, or whatever it says is taken."""
AS_GIVEN: ImportScopes = "as given"
AS_EXPORTED: ImportScopes = "as exported"
CONVERSATIONS = ("conversation",)
OWNERS = ("tenant_id", "user_id", "agent_id", "parent_id")
DEADLINE_S_MAX = 31_536_000.0
"""A compaction of an imported thread may take a year at most: nothing can wait for 1e308 seconds."""
POLICY_NUMBER_MAX = (1 << 53) - 1
INSTRUCTIONS_CHARS_MAX = 100_000


@frozen(kw_only=True)
class Allowed:
    """The allowed claims: one of `kinds`, and exactly these owners (empty: none). `everything`: any claims."""

    kinds: Collection[str] = CONVERSATIONS
    owners: Mapping[str, str] = dict.fromkeys(OWNERS, "")
    everything: bool = False

    def check(self, path: str, record: ThreadRecord) -> None:
        """Raise `ScopeNotAllowed` for a kind or an owner that is not allowed."""
        if self.everything:
            return
        claims = [
            (name, getattr(record, name), owner)
            for name, owner in self.owners.items()
            if getattr(record, name) != owner
        ]
        if record.kind not in self.kinds:
            claims.append(("kind", record.kind, ", ".join(self.kinds)))
        if claims:
            raise ScopeNotAllowed(path, tuple(claims))


CONVERSATION_OF_NOBODY = Allowed()


def allowed(  # noqa: PLR0913 - the options of an import, by keyword
    *, scopes: ImportScopes, kinds: Collection[str], tenant_id: str, user_id: str, agent_id: str, parent_id: str
) -> Allowed:
    """Return what these arguments allow. Raises `InvalidArgument`."""
    given = Allowed(
        kinds=checked_list("kinds", kinds, str, each="kinds of threads"),
        owners={
            name: checked_text(name, owner)
            for name, owner in zip(OWNERS, (tenant_id, user_id, agent_id, parent_id), strict=True)
        },
    )
    if checked_scopes(scopes) == AS_GIVEN:
        return given
    if given != CONVERSATION_OF_NOBODY:
        raise InvalidArgument("scopes", scopes, "it takes kinds and owners as the file says; give these, or it")
    return Allowed(everything=True)


def checked_scopes(scopes: ImportScopes) -> ImportScopes:
    """Return one of the two. Raises `InvalidArgument`."""
    if scopes not in (AS_GIVEN, AS_EXPORTED):
        raise InvalidArgument("scopes", scopes, f'give "{AS_GIVEN}" or "{AS_EXPORTED}"')
    return scopes


def check_same(here: ThreadRecord, record: ThreadRecord) -> None:
    """Raise `ThreadDiffers` if a thread that is to be continued has another kind or other owners than the file says."""
    pairs = ((name, getattr(here, name), getattr(record, name)) for name in ("kind", *OWNERS))
    differences = tuple(one for one in pairs if one[1] != one[2])
    if differences:
        raise ThreadDiffers(here.id, differences)


def check_policy(policy: CompactionPolicy | None) -> None:
    """Raise `InvalidPolicy` for a value of a file's policy that no engine could work with."""
    if policy is None:
        return
    if policy.deadline_s > DEADLINE_S_MAX:
        raise InvalidPolicy("deadline_s", str(policy.deadline_s), f"an imported one is at most {DEADLINE_S_MAX:.0f} s")
    if len(policy.instructions) > INSTRUCTIONS_CHARS_MAX:
        why = f"imported ones have at most {INSTRUCTIONS_CHARS_MAX:,} characters"
        raise InvalidPolicy("instructions", policy.instructions, why)
    for name in policy.__struct_fields__:
        value = getattr(policy, name)
        if isinstance(value, int) and value > POLICY_NUMBER_MAX:
            raise InvalidPolicy(name, str(value), f"an imported one is at most {POLICY_NUMBER_MAX}")
