"""Measuring a running server: is the fix effective? docs/bench.md tells how, and why so."""
