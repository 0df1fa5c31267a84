"""Boards: ranked lists, pages and files made from the tables of runs and entries."""
