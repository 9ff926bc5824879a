"""Steps that take one record at a time, and those that reduce by key."""
