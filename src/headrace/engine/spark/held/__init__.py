"""Deltas on the disks of executors: jobs beside the epochs that look at them, and merge them."""
