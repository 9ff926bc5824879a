"""Windows of time: which records they contain, and when they are emitted."""
