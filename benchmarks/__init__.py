"""The engine's speed and size on this machine, measured against its promises: `python -m benchmarks --help`."""
