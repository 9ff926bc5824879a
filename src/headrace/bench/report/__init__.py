"""The report of all benchmarks: a page with plots, from their JSON files."""
