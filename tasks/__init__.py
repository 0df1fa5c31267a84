"""Tasks: lm-eval YAML files and the little Python beside them."""
