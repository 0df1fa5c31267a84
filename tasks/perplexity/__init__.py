"""Bits per byte of any text, and that text as a corpus to train on."""
