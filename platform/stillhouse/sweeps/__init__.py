"""Search: a method, a space, and the best hyper-parameters that come out of them."""
