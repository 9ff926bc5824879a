"""The history of a checkpoint: its log read back into a ledger, and what recent commits name."""
