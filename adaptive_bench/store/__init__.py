"""Reads and writes what lies on disk: atomic files, records and their locks, runs and their tables.

Reading it needs neither the run's model, data or plugins nor torch.
"""
