"""What patterns look like to those who read them, review them and ask where they are from."""

from attrs import field, frozen

from memory_engine.events.patterns import Finding


@frozen(kw_only=True)
class Pattern:
    """A redacted text that `tenants` tenants of an industry share; which ones, nobody is told.

    `id` is made of what the text says. `own` says that the tenant which reads shares it too. What is read is
    recalled: nothing is promoted from it a second time.
    """

    id: str
    industry: str
    text: str
    tenants: int
    own: bool = False
    recalled: bool = True


@frozen
class PatternHit:
    """A pattern that was found, its score from 0 to 1 within its search, and what that rests on."""

    pattern: Pattern
    score: float
    why: str = ""
    recalled: bool = True


@frozen(kw_only=True)
class Proposal:
    """A promoted line that waits for a person.

    `original` is the line as it stands in the tenant's `agent.md`, `text` what would leave, `found` what was taken
    out (places in `original`), `cautions` what the redactor could not judge.
    """

    id: int
    industry: str
    line: int
    original: str
    text: str
    found: tuple[Finding, ...] = ()
    cautions: tuple[str, ...] = ()


@frozen(kw_only=True)
class Origin:
    """Why a tenant shares a pattern: the line, the events that it was promoted by and drawn from, who approved it."""

    line: int
    text: str
    promotion: str
    source_thread: str
    sources: tuple[str, ...]
    approval: str
    approved_by: str


@frozen(kw_only=True)
class Trace:
    """Where a pattern is from: by how many tenants it is shared, and the `origins` in the tenant that asks."""

    id: str
    industry: str
    text: str
    tenants: int
    origins: tuple[Origin, ...] = field(default=())

    def __str__(self) -> str:
        many = "1 tenant" if self.tenants == 1 else f"{self.tenants} tenants"
        said = f"industry pattern of {self.industry!r}, shared by {many}"
        own = (f"line {one.line} of agent.md ({one.text!r}), approved by {one.approved_by}" for one in self.origins)
        return "; ".join((said, *own))
