"""Causal services: services that give the same answers on every retry and replay."""
