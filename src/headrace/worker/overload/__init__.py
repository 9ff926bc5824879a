"""An overloaded slot: the limit in its plan, and records that are carried over or dropped."""
