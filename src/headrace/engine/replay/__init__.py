"""Tools for a checkpoint: run past epochs again, read its state, drop state by hand."""
