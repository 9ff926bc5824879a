"""Looking at user code from outside: time limits, tracebacks, recorded calls."""
