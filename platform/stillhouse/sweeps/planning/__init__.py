"""Plans: rows, tokens, gigabytes, memory, hours and cost of a command before it is run; and what it took."""
