"""What tasks send each other and report to the driver."""
