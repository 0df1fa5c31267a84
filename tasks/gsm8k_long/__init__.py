"""GSM8K with long worked answers: several problems in one question."""
