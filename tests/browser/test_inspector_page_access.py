"""The inspector's page as people use it who hear it, or who need contrast: axe-core finds no grave fault on any tab."""

from collections.abc import Iterator
from importlib import resources
from typing import TYPE_CHECKING, Literal

import pytest

from tests.browser.browsed_logs import make_store
from tests.browser.browsing import Window, apart
from tests.inspecting import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WHERE: dict[str, dict[str, object]] = {
    "Conversation": {},
    "Event": {"seq": 39},
    "State": {},
    "Context": {"budget": 600, "question": "claim"},
    "Views": {"thread": "user:acme/ann", "seq": 1},
    "Lineage": {"chunk": "38.0"},
    "Diff": {"seq": 38, "mark": 30},
    "Forks": {},
    "Cache": {},
    "Recall": {"recall": "claim"},
    "Brief": {},
    "Time & cost": {"thread": "trip", "seq": 6},
    "What if": {},
    "Store": {},
}
"""Every tab, each at a place where it has something to show."""
SCHEMES: dict[Literal["light", "dark"], dict[str, object]] = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
"""The themes, and which rules are tried in each."""
FAULTS = """async ([root, rules]) => {
  const { violations } = await axe.run(root, { resultTypes: ['violations'], preload: false, ...rules });
  return violations.filter(({ impact }) => ['serious', 'critical'].includes(impact))
    .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 200)).join(' | ')}`);
}"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, chromium: "Browser") -> Iterator[str]:
    """The inspector of a store in use."""
    del chromium  # where there is none, nothing is made
    path = str(tmp_path_factory.mktemp("access") / "agent.db")
    apart(lambda: make_store(path))
    with served(path) as address:
        yield address


def test_no_tab_has_a_grave_fault(chromium: "Browser", address: str) -> None:
    """The whole page once, then what each tab shows, with its folds open; in the dark too, as to contrast."""
    try:
        axe = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    except ImportError:
        pytest.skip("axe-playwright-python is not installed: `tasks.py test` does it where there is a Chromium")
    window = Window(chromium, wide=1280)
    window.context.add_init_script(axe)
    page = window.page
    found: dict[str, object] = {}
    for n, (name, where) in enumerate(WHERE.items()):
        window.go(address, **({"thread": "coding", "seq": 49} | where))
        page.get_by_role("tab", name=name).wait_for()
        window.tab(name)
        if name == "What if":
            window.panel.get_by_label("never").check()
            window.panel.get_by_role("button", name="Run again in memory").click()
            window.panel.get_by_role("table", name="Result").wait_for()
        if name not in ("Conversation", "Context"):
            window.panel.evaluate("panel => panel.querySelectorAll('details').forEach((one) => { one.open = true })")
        for scheme, rules in SCHEMES.items():
            page.emulate_media(color_scheme=scheme)
            faults = page.evaluate(FAULTS, ["body" if n == 0 else "#right", rules])
            if faults:
                found[f"{name}, {scheme}"] = faults
    assert {} == found, found
    window.close()
