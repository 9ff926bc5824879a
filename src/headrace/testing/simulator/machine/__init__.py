"""A simulated machine: disk, system calls, paths, threads, processes that can be paused."""
