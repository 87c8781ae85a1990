"""The kinds of data, one file each. A new file is a new kind: nothing else lists them."""
