"""Reading a user's own text: corpora, labelled pairs and parallel sentences."""
