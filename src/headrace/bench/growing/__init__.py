"""How the cost of an epoch grows: with records, keys, state, levels, slots, and epochs gone by."""
