"""Inspects what methods decide token by token on a text, by kind of token, position and layer."""
