"""A pipeline as bytes for workers: what travels by value, and what cannot travel."""
