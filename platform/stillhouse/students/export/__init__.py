"""Writing a trained student in the forms in which it is deployed."""
