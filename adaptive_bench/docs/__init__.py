"""Generates parts of the documentation: the methods' pages and the site around them."""
