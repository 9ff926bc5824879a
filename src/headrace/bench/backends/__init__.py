"""`headrace bench backends`: the same operations on every state store."""
