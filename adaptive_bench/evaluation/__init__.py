"""Evaluation: lm-eval over an adaptive model, the sweep of the dial, and what is kept of both."""
