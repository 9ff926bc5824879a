"""`headrace state`: looks at state, copies it, checks it, and changes it."""
