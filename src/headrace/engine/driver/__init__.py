"""The driver: follows the log, leads epochs, delivers them."""
