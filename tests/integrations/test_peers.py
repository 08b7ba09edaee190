"""Every adapter in its peer's environment: its own tests, the peer's tests run on it, and the blocks of its page."""

import os
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.integrations.environments import HERE, NotMade, peers, run_tests

if sys.platform == "win32":
    pytest.skip("environments are made under a lock that this system does not have", allow_module_level=True)


@pytest.mark.timeout(1800)  # a whole suite runs within
@pytest.mark.parametrize("name", peers())
def test_an_adapter_does_what_its_peer_expects(name: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Each inner test is a subtest here. A peer whose environment is not here is skipped; CI has to have it."""
    report = tmp_path / "report.xml"
    try:
        done = run_tests(name, report)
    except NotMade as error:
        end = pytest.fail if "CI" in os.environ else pytest.skip
        end(str(error))
    assert report.exists(), done.stdout + done.stderr
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    assert cases, done.stdout
    for case in cases:
        with subtests.test(msg=f"{case.get('classname')}::{case.get('name')}"):
            for outcome in case:
                if outcome.tag in ("failure", "error"):
                    pytest.fail(outcome.text or "", pytrace=False)
                if outcome.tag == "skipped":
                    pytest.skip(outcome.get("message") or "")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_adapter_has_its_parts() -> None:
    """A lock, a folder of tests, a page, an example, an extra: what CONTRIBUTING.md lists."""
    root = HERE.parents[1]
    missing = [
        str(path.relative_to(root))
        for name in peers()
        for path in (
            HERE / f"{name}.lock",
            HERE / name,
            root / "docs" / "integrations" / f"{name}.md",
            root / "examples" / "integrations" / f"{name}_agent.py",
            root / "memory_engine" / "integrations" / f"{name}.py",
        )
        if not path.exists()
    ]
    assert [] == missing
