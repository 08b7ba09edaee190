"""What comparing compactors takes: facts in texts, and a chart."""
