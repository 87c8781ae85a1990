"""What is written for people: tables, figures, comparisons and model cards."""
