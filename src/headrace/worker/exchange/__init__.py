"""The data that tasks send to each other, and their reports to the driver."""
