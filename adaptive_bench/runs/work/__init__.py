"""Doing the work of a plan, in one process or several; what is on disk is picked up."""
