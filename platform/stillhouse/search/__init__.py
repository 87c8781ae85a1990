"""The search itself: spaces, samplers, trials, and the resources they run on."""
