"""State on Redis: the backend, its scripts, and what a server promises."""
