"""Tasks of the paper that are lm-eval's own, unchanged."""
