"""Executors, KV cache and ledger: what executes decisions and counts them."""
