"""What every room stands on: errors, identity, artifacts, the console, devices and processes."""
