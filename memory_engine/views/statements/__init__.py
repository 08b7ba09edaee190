"""Statements: decisions on whether a later one replaces an earlier one."""
