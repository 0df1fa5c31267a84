"""One file for each family of backbones, registered as entry points under its `model_type`."""
