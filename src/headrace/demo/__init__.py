"""Demonstrations that need nothing but this package: programs as a user would write them.

`zeitgeist` finds spikes and dips in a stream of search queries. Nothing here knows Spark: the
command line brings the session.
"""
