"""CommonsenseQA: five-way multiple choice, with reasoning or by log-likelihood."""
