"""Checks that methods conform, for their authors: `adaptive-bench check`, or `check_specs` in a test."""
