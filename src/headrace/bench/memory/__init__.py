"""`headrace bench memory` and `headrace bench eviction`: state that is larger than memory."""
