"""Generates parts of the documentation: the methods' pages, the figures, and the site around them."""
