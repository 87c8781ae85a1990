"""Pages for people: tables, figures, comparisons and model cards."""
