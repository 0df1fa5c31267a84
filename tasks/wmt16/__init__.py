"""WMT16: news translated from English into Romanian."""
