"""The experiments of the paper on S4's checkpointing."""
