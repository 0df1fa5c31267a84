"""Tasks: lm-eval YAML files and the Python code they need."""
