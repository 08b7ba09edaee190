"""The docs as a site: `python3 tasks.py site` builds it into build/site."""
