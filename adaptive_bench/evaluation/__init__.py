"""Evaluation: lm-eval over an adaptive model, the sweep of the dial, matching at equal savings, spread over seeds."""
