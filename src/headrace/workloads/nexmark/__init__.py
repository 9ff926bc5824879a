"""Nexmark: 23 questions about an online auction, and the events that they are asked of."""
