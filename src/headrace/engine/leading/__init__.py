"""Leadership: the loop of a run, its lease, its standbys, and retries during outages."""
