"""How people see a pipeline run: progress as it happens, and how it ended."""
