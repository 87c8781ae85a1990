"""The ground floor: errors, identity, artifacts, the console, devices and processes."""
