"""The engine: executes decisions and counts their cost (executors, KV cache, ledger)."""
