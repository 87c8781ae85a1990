"""What every other package builds on: errors, identity, artifacts, the console, devices and processes."""
