"""Who leads: the loop of a run, its lease, its standbys, and waiting through outages."""
