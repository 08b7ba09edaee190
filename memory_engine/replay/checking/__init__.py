"""What verifying a log takes: readable differences, what is kept beside the log, processes."""
