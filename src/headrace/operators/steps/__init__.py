"""Steps that handle one record at a time, and steps that reduce by key."""
