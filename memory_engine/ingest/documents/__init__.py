"""Documents read from files: bytes in, titles, sections and dates out, a file's faults as errors that name it."""
