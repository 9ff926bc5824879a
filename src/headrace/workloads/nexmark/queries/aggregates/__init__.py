"""Queries whose answers change as bids arrive: a newer row of a key replaces the older one."""
