"""A candidate: new code that checks itself beside the running one, and asks to take over (L2)."""
