"""The computations behind the fluent interface, one idea per file."""
