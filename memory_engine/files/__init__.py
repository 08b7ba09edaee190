"""Whole files of logs: verified in several processes, compared under several compactors."""
