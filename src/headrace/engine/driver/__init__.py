"""The driver: follows the log, leads epochs, delivers them, and keeps the checkpoint small."""
