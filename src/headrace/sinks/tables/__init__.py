"""Sinks that write tables: a database, a table format. An epoch is one transaction of theirs."""
