"""GSM8K: grade-school word problems with a worked solution."""
