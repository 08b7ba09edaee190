"""Contexts as requests to providers: `turns` is what was said, in no provider's form; each form has a module."""
