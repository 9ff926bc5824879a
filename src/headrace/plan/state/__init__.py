"""How durable state is, and where: what plans, commits and the ledger say of it. Pure."""
