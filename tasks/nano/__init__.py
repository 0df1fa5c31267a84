"""The embedded default: two generated tasks, a small world of facts, and a nano backbone pretrained on them."""
