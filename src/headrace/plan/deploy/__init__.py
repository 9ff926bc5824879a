"""Changing the code of a running pipeline: contracts, comparison, probation (L). Pure."""
