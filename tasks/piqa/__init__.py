"""PIQA written in the paper's template."""
