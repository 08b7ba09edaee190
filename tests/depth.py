"""How much is tried at random: what fits into a run of minutes, or four times as much and more with `--deep`."""

import os

PROFILE = os.environ.get("MEMORY_ENGINE_LAWS", "quick")
"""The profile of laws; `python3 tasks.py test --deep` sets `thorough`."""
DEEP = PROFILE == "thorough"
"""Whether kills, simulations and laws are tried as often as before a release."""
