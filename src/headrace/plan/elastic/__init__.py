"""Elasticity: what slots report of their load, and how rings and slots follow it. Pure."""
