"""Views of a run for people: its progress as it happens, and how it ended."""
