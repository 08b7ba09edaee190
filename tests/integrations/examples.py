"""The examples of adapters, run as their reader runs them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def printed(name: str, folder: Path) -> str:
    """What an example prints, run without keys in an empty folder, with nothing on standard error."""
    kept = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "integrations" / f"{name}_agent.py")],
        capture_output=True,
        encoding="utf-8",
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout
