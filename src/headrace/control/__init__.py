"""Control through the store: requests as files, the queue that they form, and who asks (I)."""
