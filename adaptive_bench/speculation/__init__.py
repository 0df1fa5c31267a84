"""Self-speculative decoding measured against plain greedy decoding: acceptance, time, bytes, FLOPs, and equal texts.

Decoding itself is in `adaptive_bench.model.speculation`. It saves no FLOPs, so that nothing here enters a table of
matched savings: it is a matter of time.
"""
