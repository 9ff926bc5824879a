"""Runs computations whose hooks take records as Arrow tables."""
