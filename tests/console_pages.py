"""Write what a page's `console` commands print into it: `python -m tests.console_pages docs/tools/tour.md`.

The blocks run as `tasks.py docs` runs them (see conftest.py). Where a block holds `...`, it is left as it is.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from conftest import COMMANDS, ROOT, console_environment

BLOCK = re.compile(r"```console\n(.*?)```\n", re.DOTALL)


def write(page: Path) -> None:
    """Run the page's commands, in order, and put what they print after each."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "examples").symlink_to(ROOT / "examples")

        def command(found: re.Match[str]) -> str:
            done = subprocess.run(
                found["command"].replace("\n> ", "\n"),
                shell=True,
                capture_output=True,
                encoding="utf-8",
                env=console_environment(),
                cwd=folder,
                check=False,
            )
            sys.stderr.write(done.stderr)
            code = f"# exit code {done.returncode}\n" if done.returncode else ""
            printed = found["printed"] if "..." in found["printed"] else done.stdout
            return f"$ {found['command']}\n{code}{printed}"

        def block(found: re.Match[str]) -> str:
            return f"```console\n{COMMANDS.sub(command, found[1])}```\n"

        page.write_text(BLOCK.sub(block, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write(Path(name))
