"""`log`: cells appended to files, and an index in memory of where each newest one lies."""
