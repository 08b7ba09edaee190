"""The tool cache: results that answer the same call again."""
