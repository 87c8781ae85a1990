"""An experiment: what all trials share, one file for each kind of data, and its preparation."""
