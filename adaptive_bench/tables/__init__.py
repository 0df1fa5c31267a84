"""Tables from measured points: matching at levels, intervals, paired tests, and which rows may stand together."""
