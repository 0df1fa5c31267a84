"""What lies on disk: files that are whole or absent, records and who may write them, runs and their tables.

To read it needs neither the model, the data or the plugin of a run, nor torch.
"""
