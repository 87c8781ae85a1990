"""Teachers: which weights they are, what they say of every text, and where that is kept."""
