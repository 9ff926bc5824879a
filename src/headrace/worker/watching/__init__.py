"""Observes user code from outside: time limits, tracebacks, recorded hook calls."""
