"""Several epochs of a file sink in one directory, so that few large files appear."""
