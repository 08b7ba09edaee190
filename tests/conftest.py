"""What holds for every test: no verdict depends on how busy the machine is, and failures are explained."""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# The storage contract lives in the package, where pytest would leave assertions as they are.
pytest.register_assert_rewrite("memory_engine.testing")
