"""Windows of time: which records belong together, and when a window is emitted."""
