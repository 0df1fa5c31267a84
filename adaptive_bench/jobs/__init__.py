"""Runs jobs in processes that are watched and report progress, on this machine or on a cluster. A job has a label, a
record folder and an estimate, and can be run; this package does not know what the work is about.
"""
