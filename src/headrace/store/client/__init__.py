"""How the clients of remote stores are made: credentials, errors as sentences, and forks."""
