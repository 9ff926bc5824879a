"""Causal services: the same answers on every retry and replay."""
