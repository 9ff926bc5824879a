"""Queries that bring bids, auctions and people together."""
