"""MMLU: four-way multiple choice in 57 subjects, by log-likelihood or as a written answer."""
