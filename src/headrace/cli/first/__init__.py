"""The first minutes: a new project, and a check of a pipeline on a few real records."""
