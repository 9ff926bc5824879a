"""Files as sources: which files, where a range may be cut, and one module for each format."""
