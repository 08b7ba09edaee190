"""What the engine's promises of speed and size are worth on this machine: `python -m benchmarks --help`."""
