"""What tests of encrypted stores share."""

import hashlib
import subprocess
from collections.abc import Collection
from pathlib import Path

KEY = "correct horse battery staple"
RAW = bytes(range(32))
"""The key itself: nothing has to be made of it, which would take some tenths of a second."""
