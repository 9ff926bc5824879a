"""Anchors: how tasks stay on their executors, and how they move to those that join."""
