"""What holds for every test: no verdict depends on how busy the machine is, and failures are explained."""

import pytest
from hypothesis import HealthCheck, settings

from memory_engine.cli import main
from tests.command_line import Run

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# The storage contract lives in the package, where pytest would leave assertions as they are.
pytest.register_assert_rewrite("memory_engine.testing")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line; exit code, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call
