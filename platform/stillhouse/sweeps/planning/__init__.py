"""Plans: rows, tokens, gigabytes, memory and hours of a command before it is run."""
