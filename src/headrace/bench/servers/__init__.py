"""Servers that benchmarks and tests start on this machine: installed on first use, on 127.0.0.1."""
