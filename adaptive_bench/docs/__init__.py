"""What of the documentation is written by code: the methods' pages, the figures, and the site around both."""
