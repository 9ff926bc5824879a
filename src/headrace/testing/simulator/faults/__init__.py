"""What can go wrong in a simulation, and when it does."""
