"""For tests of those who use the engine: fakes, fault injection and contract suites."""
