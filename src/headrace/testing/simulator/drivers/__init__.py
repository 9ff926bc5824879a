"""Simulated processes around a checkpoint: drivers, workers, readers."""
