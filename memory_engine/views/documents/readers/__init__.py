"""Documents read from files: Markdown, pages, mail, Slack exports, transcripts, PDF."""
