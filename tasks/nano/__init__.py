"""The embedded default: generated tasks about a small world of facts, and the nano backbones pretrained on it."""
