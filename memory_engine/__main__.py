"""`python -m memory_engine`: the same as `memory-engine`."""

import sys

from memory_engine.cli.program import main

if __name__ == "__main__":
    sys.exit(main())
