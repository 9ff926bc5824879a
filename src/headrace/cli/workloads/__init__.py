"""Commands that run well-known workloads."""
