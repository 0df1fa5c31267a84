"""Doing jobs: in processes, watched, with their progress; on this machine or given to a cluster. A job has a label, a
record folder and an estimate, and can be run; what it is about is its own affair.
"""
