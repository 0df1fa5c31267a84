"""Evaluation: runs lm-eval on adaptive models, finds tasks, and sweeps the dial over savings."""
