"""State that lies in a state store: opened for readers, copied while it goes on, verified."""
